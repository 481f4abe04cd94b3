leat view gpu
