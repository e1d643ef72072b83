//! What a service manager hears of a real process.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::os::unix::net::UnixDatagram;

use common::{Member, Scratch, PATIENCE, PORTS};

#[test]
fn a_service_manager_hears_ready_reloading_alive_and_stopping() {
    let scratch = Scratch::new();
    let path = scratch.0.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    // Everything else may come between: the watchdog's message comes when it wants.
    let hear_until = |wanted: &str| loop {
        let said = hear();
        if said.starts_with(wanted) {
            return said;
        }
        assert_eq!(said, "WATCHDOG=1", "before {wanted}");
    };
    let mut member = Member::start_with(
        &format!("{PORTS}limits: []\n"),
        &[
            ("NOTIFY_SOCKET", path.to_str().unwrap()),
            ("WATCHDOG_USEC", "20000"),
        ],
    );
    hear_until("READY=1");
    hear_until("WATCHDOG=1");
    common::signal(&member.child, "HUP");
    let reloading = hear_until("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    hear_until("READY=1");
    member.terminate();
    hear_until("STOPPING=1");
    assert_eq!(member.wait().code(), Some(0));
}
