// The body of a request to Sluicegate for a permit of the present request, of $sluicegate_policy and its client:
//
//   js_import sluicegate from /etc/nginx/njs/sluicegate.js;
//   js_set $sluicegate_permit sluicegate.permit;

// The client's address as a key. An IPv6 address becomes its network of 64 bits, as a client can use any
// address in it; an IPv4-mapped one becomes the IPv4 address.
function client(r) {
    const bytes = r.rawVariables.binary_remote_addr;
    const digits = bytes.toString('hex');
    if (bytes.length === 4 || digits.startsWith('00000000000000000000ffff')) {
        return digits.slice(-8).match(/../g).map((byte) => parseInt(byte, 16)).join('.');
    }
    return digits.slice(0, 16).match(/..../g).join(':') + '::/64';
}

function permit(r) {
    return JSON.stringify({ policy: r.variables.sluicegate_policy, key: client(r), id: r.variables.request_id });
}

export default { client, permit };
