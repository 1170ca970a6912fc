//! Counts and states of nodes.

use sluicegate_control::Catalog;
use sluicegate_control::catalog::{Node, NodeReport};
use sluicegate_control::traffic::{Bucket, Counts, PolicyCounts, Step, run_name};

use crate::catalog::stage::{NOW, Stage};

fn bucket(at: i64, allowed: u64) -> Bucket {
    let counts = Counts([allowed, 0, 0, 0, 0, 0, 0, 0, 0]);
    Bucket { at, policies: vec![PolicyCounts { policy: "p".to_owned(), counts, top: Vec::new() }] }
}

/// Node, begin and count of each row, in the order in which they are visited.
async fn rows(catalog: &Catalog, step: Step, since: i64) -> Vec<(String, i64, u64)> {
    let mut rows = Vec::new();
    let visit = |of: sluicegate_control::catalog::NodeBucket| {
        rows.push((of.node, of.bucket.at, of.bucket.policies[0].counts.0[0]));
    };
    catalog.visit_traffic(step, since, visit).await.unwrap();
    rows
}

pub(crate) async fn rows_are_visited_once_each_the_latest_first(stage: &Stage) {
    let catalog = &stage.catalog;
    // More than are read at a time, and times that more than one node has.
    for at in 0..70 {
        for node in ["a", "b"] {
            let bucket = bucket(NOW + at * 10_000, at.unsigned_abs());
            catalog.record_traffic(node, Step::Fine, &bucket).await.unwrap();
        }
    }
    catalog.record_traffic("a", Step::Coarse, &bucket(NOW, 7)).await.unwrap();
    catalog.record_traffic("a", Step::Coarse, &bucket(NOW, 8)).await.unwrap();
    let fine = rows(catalog, Step::Fine, NOW + 10_000).await;
    let expected = (1..70).rev().flat_map(|at: i64| {
        ["b", "a"].map(|node| (node.to_owned(), NOW + at * 10_000, at.unsigned_abs()))
    });
    assert_eq!(fine, expected.collect::<Vec<_>>());
    let coarse = rows(catalog, Step::Coarse, NOW).await;
    assert_eq!(coarse, [("a".to_owned(), NOW, 7)], "the first one stays");
}

pub(crate) async fn old_rows_go_those_of_a_node_with_it_after_a_day(stage: &Stage) {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let catalog = &stage.catalog;
    for (node, step) in [("a", Step::Fine), ("a", Step::Coarse), ("b", Step::Fine)] {
        for at in [NOW, NOW + 20_000, NOW + DAY / 2, NOW + DAY] {
            catalog.record_traffic(node, step, &bucket(step.floor(at), 1)).await.unwrap();
        }
    }
    let begins = async |step| {
        let rows = rows(catalog, step, 0).await;
        rows.into_iter().map(|(node, at, _)| (node, at - NOW)).collect::<Vec<_>>()
    };
    let of = |node: &str, at| (node.to_owned(), at);
    catalog.forget_traffic("a", NOW + 10_000 + Step::Fine.kept_ms()).await.unwrap();
    let fine = begins(Step::Fine).await;
    assert_eq!(fine.iter().filter(|(node, _)| node == "a").count(), 3);
    assert!(!fine.contains(&of("a", 0)) && fine.contains(&of("b", 0)));
    catalog.forget_traffic("a", NOW + DAY + 600_000).await.unwrap();
    let kept = [("b", DAY), ("a", DAY), ("b", DAY / 2)].map(|(node, at)| of(node, at));
    assert_eq!(begins(Step::Fine).await, kept, "`b` has not been away for a day yet");
    assert_eq!(begins(Step::Coarse).await, [of("a", DAY), of("a", DAY / 2)]);
}

pub(crate) async fn what_a_killed_node_wrote_of_five_minutes_is_added_up(stage: &Stage) {
    let catalog = &stage.catalog;
    let (fine, coarse) = (Step::Fine.ms(), Step::Coarse.ms());
    let begin = Step::Coarse.floor(NOW);
    let write = async |node: &str, step: Step, at: i64, allowed: u64| {
        catalog.record_traffic(node, step, &bucket(at, allowed)).await.unwrap();
    };
    // It ran through the first five minutes, was stopped in the next ones, and killed after its second start.
    write("a", Step::Fine, begin, 5).await;
    write("a", Step::Coarse, begin, 5).await;
    write("a", Step::Fine, begin + coarse, 10).await;
    write(&run_name("a", 1), Step::Fine, begin + coarse + fine, 3).await;
    write(&run_name("a", 1), Step::Coarse, begin + coarse, 13).await;
    write("a", Step::Fine, begin + coarse + 2 * fine, 7).await;
    // Rows of other nodes do not count, whatever their names.
    for other in ["b", "a@b", "a@b@1"] {
        write(other, Step::Fine, begin + coarse, 100).await;
    }
    let start = begin + coarse + 4 * fine;
    catalog.complete_traffic("a", start).await.unwrap();
    let rows = rows(catalog, Step::Coarse, 0).await;
    let of_a: Vec<_> =
        rows.iter().map(|(node, at, count)| (node.as_str(), at - begin, *count)).collect();
    let (first, second) = (run_name("a", 1), run_name("a", start));
    assert_eq!(of_a.len(), 3, "{of_a:?}");
    for row in [("a", 0, 5), (&first, coarse, 13), (&second, coarse, 7)] {
        assert!(of_a.contains(&row), "{row:?} of {of_a:?}");
    }
}

pub(crate) async fn a_node_says_how_it_does_until_it_is_forgotten(stage: &Stage) {
    let catalog = &stage.catalog;
    let node = |name: &str, seen_at| Node {
        name: name.to_owned(),
        software: "1".to_owned(),
        revision: 3,
        started_at: NOW,
        seen_at,
    };
    catalog.record_node(&node("a", NOW), 0).await.unwrap();
    catalog.record_node(&node("b", NOW), 0).await.unwrap();
    for keys in [1, 2] {
        let report = NodeReport { keys: Some(keys), through: [5, 0], ..NodeReport::default() };
        catalog.record_report("a", &report).await.unwrap();
        catalog.record_report("a", &report).await.unwrap();
    }
    let nodes = catalog.fleet().await.unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let report = nodes[0].report.as_ref().unwrap();
    assert_eq!((report.keys, nodes[0].through(Step::Fine)), (Some(2), Some(5)));
    assert_eq!((nodes[0].through(Step::Coarse), nodes[1].report.as_ref()), (None, None));

    // Old ones are forgotten when a new one comes.
    catalog.record_node(&node("c", NOW + 9), NOW + 1).await.unwrap();
    assert_eq!(catalog.fleet().await.unwrap().nodes.len(), 1);
    catalog.record_node(&node("a", NOW + 9), 0).await.unwrap();
    assert_eq!(catalog.fleet().await.unwrap().nodes[0].report, None, "it went with the node");
}
