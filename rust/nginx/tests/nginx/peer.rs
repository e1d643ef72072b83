//! One gabiond beside nginx, as a peer.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::http::get_with;
use crate::server::{program, wait_for, Folder};

pub(crate) struct Gabiond {
    child: Child,
    pub(crate) folder: Folder,
    admin: u16,
}

impl Gabiond {
    /// Starts one in the cluster `test`, with these limits, gossiping on `own` with `peer`.
    pub(crate) fn start(limits: &str, own: u16, peer: u16) -> Gabiond {
        let folder = Folder::new();
        let yaml = folder.write(
            "gabiond.yaml",
            &format!(
                "envoy_bind: 127.0.0.1:0\nadmin_bind: 127.0.0.1:0\nlimits:\n{limits}\
                 gossip: {{bind: '127.0.0.1:{own}', cluster_id: test}}\n\
                 discovery: {{static: ['127.0.0.1:{peer}']}}\n"
            ),
        );
        let log = std::fs::File::create(folder.0.join("gabiond.log")).expect("a log");
        let ports = folder.0.join("ports.json");
        let mut command = Command::new(program("gabiond"));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("GABION_") {
                command.env_remove(variable);
            }
        }
        let child = command
            .arg(&yaml)
            .arg("--ports-file")
            .arg(&ports)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("gabiond starts");
        let mut gabiond = Gabiond {
            child,
            folder,
            admin: 0,
        };
        wait_for("gabiond", || ports.is_file());
        let text = std::fs::read_to_string(&ports).expect("its ports");
        let bound: Value = serde_json::from_str(&text).expect("JSON");
        let admin = bound["admin"].as_str().expect("an address");
        let (_, port) = admin.rsplit_once(':').expect("a port");
        gabiond.admin = port.parse().expect("a number");
        gabiond
    }

    pub(crate) fn snapshot(&self) -> Value {
        let body = get_with(self.admin, "/snapshot", "").body;
        serde_json::from_str(&body).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("gabiond.log")).unwrap_or_default()
    }
}

impl Drop for Gabiond {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of gabiond:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
