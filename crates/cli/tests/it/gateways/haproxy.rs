//! HAProxy with its Lua script.

use sluicegate_testkit::{Error, Launch, Program, need};

use super::audit::exactly_what_the_policy_allows_passes;
use super::stage::{Places, Stage, changed, example, root, tool};

/// Starts HAProxy with the configuration of the example.
pub(crate) fn start(places: &Places) -> Result<Program, Error> {
    let folder = root().join("examples/gateways/haproxy").display().to_string();
    let site = changed(&example("gateways/haproxy/haproxy.cfg"), &[("/etc/haproxy", &folder)]);
    let files = [("haproxy.cfg", places.in_text(&site))];
    let args = ["-db", "-f", "{dir}/haproxy.cfg"];
    Program::start(&tool("haproxy"), &Launch { files: &files, args: &args })
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass_through_haproxy() {
    let policies = example("gateways/policies.yaml");
    let stage = need!(Stage::set(&policies, &[], async |places| start(places)).await);
    exactly_what_the_policy_allows_passes(&stage).await;
}
