//! Each example's `run`, as a reader starts it.

use std::process::Command;
use std::time::Instant;

use gabion_envoy_e2e::doors::Programs;
use gabion_loader::local::source_root;

use crate::common::said;

fn run(example: &str, notice: &[&str]) {
    let programs = Programs::find().unwrap();
    let began = Instant::now();
    let script = source_root().join("examples").join(example).join("run");
    let output = Command::new(script)
        .env("GABIOND", &programs.gabiond)
        .env("NGINX_MODULE", &programs.module)
        .env("NGINX_BINARY", &programs.nginx)
        .env("ENVOY_BINARY", &programs.envoy)
        .env("GABION_EXAMPLE", env!("CARGO_BIN_EXE_gabion-example"))
        .output()
        .unwrap();
    let text = said(&output);
    println!("{text}");
    assert!(output.status.success(), "{}", output.status);
    for words in notice {
        assert!(text.contains(words), "{words}");
    }
    println!("{example}: {:?}", began.elapsed());
}

#[test]
fn the_registry_runs_and_prints_what_to_notice() {
    run(
        "registry",
        &[
            "TOOMANYREQUESTS",
            "registry/2.0",
            "Retry-After",
            "level=info msg=\"rate limit exceeded\" client_ip=203.0.113.50",
        ],
    );
}

#[test]
fn the_package_registries_run_and_print_what_to_notice() {
    run(
        "virtual-registries",
        &[
            "throttle_authenticated_api",
            "virtual_registries_endpoints_api_limit",
            "gabion_rule_dry_run_denied_total",
        ],
    );
}
