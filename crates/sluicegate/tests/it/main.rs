//! The tests of this crate from outside, in one program that is linked once.

mod engine;
mod engine_debts;
mod engine_following;
mod engine_lease_stats;
mod engine_leases;
mod engine_leases_outage;
mod engine_overflow;
mod engine_settle;
mod engine_together;
mod engine_turn;
mod engine_without_store;
mod example_axum_redis;
mod keyed_waiting;
mod lease_cell;
mod leasing;
mod limiter_concurrency;
mod limiter_lane;
mod limiter_reserve;
mod limiter_throttled;
mod limiter_waiting;
mod polling;
mod tower;
mod tower_headers;
mod tower_keys;
mod tower_policies;
mod wire_vectors;
