//! Members that find each other by EndpointSlices.
#![allow(clippy::unwrap_used)]

use common::kubernetes::ApiServer;
use common::{http_get, until, Member, Scratch, GOSSIP, PORTS};

mod common;

const RULES: &str = "limits:\n- {name: a, domain: d, rate: 3r/m, descriptors: [{key: k}]}\n";

fn start(kubeconfig: &str, discovery: &str) -> Member {
    let config = format!("{PORTS}{GOSSIP}discovery: {{{discovery}}}\n{RULES}");
    let environment = [("KUBECONFIG", kubeconfig), ("POD_NAMESPACE", "")];
    Member::start_with(&config, &environment)
}

#[test]
fn members_find_each_other_by_endpoint_slices_and_say_how_they_know() {
    let (server, scratch) = (ApiServer::start(), Scratch::new());
    let config = server.kubeconfig(&scratch);
    let config = common::text(&config);
    let (one, two) = (
        start(config, "service_allow: [edge]"),
        start(config, "kubernetes: true"),
    );
    let ends = [one.gossip.unwrap(), two.gossip.unwrap()];
    server.endpoints(&ends);
    for member in [&one, &two] {
        until("they have met", || {
            let gossip = member.snapshot()["gossip"].clone();
            let met = gossip["peers"][0]["hears_us"] == true && gossip["discovered_peers"] == 1;
            met.then_some(())
        });
        let source = &member.snapshot()["gossip"]["discovery"][0];
        assert_eq!(source["source"], "kubernetes");
        assert!(source["age_s"].as_f64().unwrap() < 60.0, "{source}");
        let metrics = http_get(member.admin, "/metrics").1;
        let line = r#"gabion_discovery_peers{source="kubernetes"}"#;
        assert!(metrics.contains(line), "{metrics}");
        assert!(
            metrics.contains("gabion_discovery_age_seconds{"),
            "{metrics}"
        );
    }
    // Who leaves the slices is no peer any more.
    server.endpoints(&[ends[0], ends[0]]);
    until("the other is gone", || {
        let gone = one.snapshot()["gossip"]["discovered_peers"] == 0;
        gone.then_some(())
    });
}

#[test]
fn case_45_without_a_cluster_a_member_serves_and_says_what_to_set() {
    let member = start(
        "/nowhere/kubeconfig",
        "namespace_allow: [here], service_allow: [edge]",
    );
    until("it is ready", || {
        (member.get("/readyz").0 == 200).then_some(())
    });
    until("it says so", || {
        let said = member.log();
        said.contains("kubeconfig /nowhere/kubeconfig: ")
            .then_some(())
    });
    let errors = until("it is counted", || {
        let source = member.snapshot()["gossip"]["discovery"][0].clone();
        source["errors"]["access"]
            .as_u64()
            .filter(|count| *count > 0)
    });
    assert!(errors < 100, "{errors}");
    let metrics = http_get(member.admin, "/metrics").1;
    let line = r#"gabion_discovery_errors_total{source="kubernetes",kind="access"}"#;
    assert!(metrics.contains(line), "{metrics}");
    assert_eq!(
        member.log().matches("kubeconfig /nowhere").count(),
        1,
        "thinned"
    );
}
