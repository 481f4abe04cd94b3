leat
leat help
leat --help
leat help view
leat view --help
leat compare -h
leat help comapre
leat comapre a b
leat frobnicate
