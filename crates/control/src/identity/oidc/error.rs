//! Failures of a sign-in.

/// Reason why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error(
        "sign-in not found in this browser, or older than 10 minutes: start again at \
         `/v1/admin/oidc/login`"
    )]
    Foreign,
    #[error("the identity provider returned `{0}`")]
    Told(String),
    #[error("the identity provider rejected the code: used or expired")]
    Code(String),
    #[error("invalid response from the identity provider")]
    Unbelievable(String),
    #[error("identity provider unavailable; accounts with a password can still sign in")]
    Away(String),
    #[error("too many concurrent sign-ins; retry in 1 s")]
    Busy,
}
