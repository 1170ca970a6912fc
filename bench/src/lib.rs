//! The measured cases and the measurement, shared by the table (`main.rs`) and the curves
//! (`benches/`).

pub mod engine;
pub mod lease;
pub mod limiter;
pub mod measure;
pub mod memory;
pub mod process;
pub mod served;
pub mod table;
