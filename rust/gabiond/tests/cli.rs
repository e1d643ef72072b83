//! The commands of the binary, against real members.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{ended_with, run, text, Member, Scratch};
use gabion_server::protocol::{descriptor, request};

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}\n";

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn top_shows_a_member_s_rules_and_ends_after_its_pages() {
    let member = Member::start(RULES);
    let admin = member.admin.to_string();
    let call = request("edge", vec![descriptor(&[("ip", "1.2.3.4")])]);
    for _ in 0..4 {
        member.ask(call.clone()).await;
    }
    let page = stdout(&["top", "--member", &admin, "-n", "1", "-d", "0.1"]);
    for word in ["gabiond 0.1.0", "ready", "NAME", "\nip ", "counts alone"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let admin = format!("http://{admin}/");
    let two = stdout(&["top", "--member", &admin, "-n", "2", "-d", "0.1"]);
    assert_eq!(two.matches("DENIED/s").count(), 2, "{two}");
}

#[test]
fn a_member_that_is_not_there_is_said_with_what_to_try() {
    // The port was free a moment ago, and nobody is told of it.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    drop(socket);
    for command in [&["top", "-n", "1"][..], &["reset", "x"]] {
        let arguments: Vec<&str> = command
            .iter()
            .copied()
            .chain(["--member", &address])
            .collect();
        let stderr = ended_with(&run(&arguments), 1);
        assert!(stderr.contains("Is the member running"), "{stderr}");
    }
    let stderr = ended_with(&run(&["top", "--member", "nowhere"]), 2);
    assert!(stderr.contains("write HOST:PORT"), "{stderr}");
    let missing = run(&[
        "reset",
        "x",
        "--token-file",
        "/no/such",
        "--member",
        &address,
    ]);
    assert!(ended_with(&missing, 1).contains("the token cannot be read"));
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let help = stdout(&["--help"]);
    let scratch = Scratch::new();
    stdout(&["man", text(&scratch.0)]);
    let page = stdout(&["man"]);
    for command in ["check", "top", "reset", "completions", "man"] {
        assert!(help.contains(command), "{help}");
        for shell in ["bash", "zsh", "fish"] {
            let script = stdout(&["completions", shell]);
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(page.contains(command), "{command}");
        let own = scratch.0.join(format!("gabiond-{command}.1"));
        assert!(std::fs::read_to_string(own).unwrap().contains(command));
    }
    assert!(ended_with(&run(&["man", "/no/such/folder"]), 1).contains("/no/such/folder"));
}

#[test]
fn the_version_says_what_it_was_built_from() {
    let version = stdout(&["--version"]);
    let target = std::env::consts::ARCH;
    assert!(
        version.contains(target) && version.contains("0.1.0 ("),
        "{version}"
    );
}
