leat compare slow fast
leat compare fast slow
leat compare fast fast-again
leat compare slow hungry
leat compare fast noisy
leat compare fast batch64
leat compare fast fast
leat compare slow ranks | head -4
