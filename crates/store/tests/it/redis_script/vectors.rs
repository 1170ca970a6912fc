//! The vectors of `spec/`.

use sluicegate_conformance::{load, load_leases, run, run_lease};
use sluicegate_store::redis::codec::ScriptClock;

use crate::redis_script::lua;
use crate::redis_script::server::RealRedis;
use crate::redis_script::subject::{Executor, Scripted};

pub(crate) fn answers_every_vector(executor: impl Executor) {
    let mut subject = Scripted::new(executor, ScriptClock::Given);
    let (vectors, leases) = (load().unwrap(), load_leases().unwrap());
    assert!(vectors.len() > 50, "only {} vectors", vectors.len());
    assert!(leases.len() > 25, "only {} vectors about leases", leases.len());
    let mut problems = Vec::new();
    for (_, vector) in &vectors {
        problems.extend(run(vector, &mut subject).err().map(|problem| problem.to_string()));
    }
    for vector in &leases {
        problems.extend(run_lease(vector, &mut subject).err().map(|problem| problem.to_string()));
    }
    assert!(
        problems.is_empty(),
        "{} of {}:\n{}",
        problems.len(),
        vectors.len() + leases.len(),
        problems.join("\n")
    );
}

#[test]
fn the_script_answers_every_vector_in_lua() {
    answers_every_vector(lua::redis());
}

#[test]
fn the_script_answers_every_vector_in_a_real_server() {
    if let Some(server) = RealRedis::start() {
        answers_every_vector(server);
    }
}
