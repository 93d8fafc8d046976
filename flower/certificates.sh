#!/usr/bin/env bash
# A certificate authority of one's own, and the SuperLink's certificate from it, which lasts a year:
#   flower/certificates.sh FOLDER NAME...     the names and addresses by which others reach the SuperLink
# ca.crt goes to everybody; superlink.key and ca.key to nobody.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: flower/certificates.sh FOLDER NAME..., such as certificates 192.0.2.1 link.example"; exit 2; }
command -v openssl > /dev/null || { echo "certificates.sh needs openssl: install it"; exit 1; }
folder="$1"; shift
names=()
for name in "$@"; do
    if [[ "$name" =~ ^[0-9.]+$|: ]]; then names+=("IP:$name"); else names+=("DNS:$name"); fi
done
mkdir -p "$folder"; cd "$folder"
umask 077
new=(-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes)
openssl req -x509 "${new[@]}" -days 365 -subj "/CN=federation" -keyout ca.key -out ca.crt 2> /dev/null
openssl req "${new[@]}" -subj "/CN=$1" -keyout superlink.key -out superlink.csr 2> /dev/null
openssl x509 -req -in superlink.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out superlink.crt \
    -extfile <(IFS=,; echo "subjectAltName=${names[*]}") 2> /dev/null
rm superlink.csr ca.srl
echo "$folder has ca.crt, for everybody, and superlink.crt with superlink.key, for the SuperLink alone."
