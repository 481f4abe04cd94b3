# Readers change nothing.
find logs -type f -exec sha256sum {} + | sort > /tmp/leat-before.$$; leat view slow >/dev/null; leat compare slow fast >/dev/null; find logs -type f -exec sha256sum {} + | sort | cmp - /tmp/leat-before.$$; rm /tmp/leat-before.$$
