leat view slow --fail-on critical >/dev/null
leat view slow --fail-on=warning >/dev/null
leat view fast --fail-on warning >/dev/null
leat view fast --fail-on info >/dev/null
leat view fast --fail-on serious
leat view fast --fail-on
