//! State in Redis or Valkey: one script decides where the state lives.

pub mod codec;
pub mod script;
