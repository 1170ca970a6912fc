//! What is done, once it is known who asks and that they may.

pub(super) mod accounts;
pub(super) mod apps;
pub(super) mod audit;
pub(super) mod keys;
pub(super) mod meta;
pub(super) mod policies;
pub(super) mod sessions;
pub(super) mod tokens;
