//! Envoy's rate limit service, version 3, which Envoy, Istio, Contour, Emissary and kgateway use.
//!
//! A request has a *domain* and *descriptors*, each a list of *entries*, keys with their values. All
//! descriptors are decided, each on its own, and the request is over the limit if one of them is.
//! The meaning of a descriptor follows from its domain:
//!
//! | domain | entries | means |
//! |---|---|---|
//! | `sluicegate` | `(policy, NAME)`, and if wanted `(key, K)`, `(app, A)` | that key of that policy |
//! | one of the descriptor tree | as the tree has them | the policy at that leaf; see [`DescriptorTree`] |
//! | the name of a policy | any | that policy; the key is all entries, joined so that different ones are different keys |
//! | any other | any | no limit applies, and it is OK |
//!
//! A descriptor with a `limit` of its own sends the limit along: it is a fixed window of that unit for
//! exactly these entries, in each of the first three domains. In any other domain no limit applies at
//! all. It has a budget of its own for each unit, beside those of policies: a limit that a caller sets
//! and one that an operator sets do not spend each other's permits.
//!
//! **Quotas.** A descriptor of the tree with `quota: true` is one of several of which any will do: over
//! the limit, it refuses the request only together with all the others of this kind.
//!
//! **Hits.** A descriptor takes its own `hits_addend`, else that of the request, else 1. `hits_addend: 0`
//! of a descriptor only peeks: it is over the limit if not one permit is left, or with `rls.looks_pass`
//! once a charge was refused then. With `rls.stop_increment_when_over_limit`, a request that is over the
//! limit charges no descriptor that is not. `is_negative_hits` gives permits back, and is always OK. More
//! hits than are left: a policy that was named refuses them and takes nothing. Descriptors of a tree, and
//! limits that were sent along, count as `envoyproxy/ratelimit` does, for gateways that report afterwards
//! what a request has cost: what was left is used up, and the answer is OVER_LIMIT.
//!
//! **Keys** longer than stores take (1 KiB; a token in a header can be) become their SHA-256 behind a
//! byte that no text has, so that a long value does not evade a limit, and no two share a budget.
//!
//! **Answers.** `current_limit` is the limit of the rule that decided, with the unit in which all of it
//! comes back, or UNKNOWN. `duration_until_reset` is the time until the same request can pass, or, if
//! it has passed, until the budget is full. `response_headers_to_add` is for the client: `Retry-After`
//! on a refusal, `X-Sluicegate-Mode` where the store did not decide, and the fields of `rls.headers`. A
//! request that rules delay is held here: gateways do not wait for it themselves.
//!
//! | over the limit, and the policy says | code | and |
//! |---|---|---|
//! | `reject`, or held in a `queue` for too long | OVER_LIMIT | |
//! | `degrade: { response }` | OVER_LIMIT | its body in `raw_body`, its headers for the client; the status is the gateway's |
//! | `degrade: { tag }` | OK | `x-sluicegate-degrade: TAG` on the request that goes on |
//! | `divert: { target }` | OK | `x-sluicegate-divert: TARGET` on the request that goes on |
//! | `shadow` | OK | |
//!
//! | error | gRPC status | `POST /json` |
//! |---|---|---|
//! | invalid request | INVALID_ARGUMENT | 400 |
//! | missing or invalid token | UNAUTHENTICATED | 401 |
//! | unknown policy | NOT_FOUND | 404 |
//! | policy not available to this app, or request not permitted | PERMISSION_DENIED | 403 |
//! | the store does not answer, and there is no fallback | UNAVAILABLE | 503 |
//!
//! [`DescriptorTree`]: sluicegate_policy::DescriptorTree

mod client;
mod codec;
mod json;
mod message;
mod proto;
mod protobuf;
mod serve;
mod service;
mod whole;

pub use client::{RlsClient, RlsReply};
pub use codec::request_in;
pub(crate) use json::routes;
pub(crate) use serve::serve;
pub(crate) use service::{RateLimits, RlsOptions};
