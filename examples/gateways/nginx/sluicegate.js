// The key of a client's address:
//
//   js_import sluicegate from /etc/nginx/njs/sluicegate.js;
//   js_set $sluicegate_client sluicegate.client;

// An IPv6 address becomes its network of 64 bits, as a client can use any address in it; an IPv4-mapped one becomes
// the IPv4 address.
function client(r) {
    const bytes = r.rawVariables.binary_remote_addr;
    const digits = bytes.toString('hex');
    if (bytes.length === 4 || digits.startsWith('00000000000000000000ffff')) {
        return digits.slice(-8).match(/../g).map((byte) => parseInt(byte, 16)).join('.');
    }
    return digits.slice(0, 16).match(/..../g).join(':') + '::/64';
}

export default { client };
