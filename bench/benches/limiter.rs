//! The table of `make bench` as criterion benchmarks, with curves.

use criterion::{Criterion, criterion_group, criterion_main};
use sluicegate_bench::measure::{Case, run};
use sluicegate_bench::{engine, limiter};

fn limiter(criterion: &mut Criterion) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let mut cases = limiter::cases().expect("every limiter can be made");
    cases.push(engine::case().expect("the policy can be read"));
    for Case { work, threads, ours, peer, .. } in cases {
        let beside = peer.as_ref().map_or("no peer", |(name, _)| *name);
        let title = format!("{work}, {threads} threads, {beside}");
        let mut group = criterion.benchmark_group(title);
        let peer = peer.iter().map(|(name, work)| (*name, work));
        for (name, work) in std::iter::once(("sluicegate", &ours)).chain(peer) {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|ops| run(work, ops, threads, &cores));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, limiter);
criterion_main!(benches);
