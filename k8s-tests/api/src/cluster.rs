//! Pods of one namespace: real members, with the objects that the API has of them.
//!
//! Owns: the lab with its members, the namespace and its objects. Promises: a member sees what a
//! pod sees: its own address in the environment, and a token that is bound to it; slices come from
//! the controller alone. Never: tells a member its peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gabion_netlab::lab::{until, Lab, LabSpec, Programs};
use gabion_netlab::member::Pod;
use gabion_netlab::net::{address, LAB_ADDRESS};
use gabion_netlab::LabError;
use serde_json::{json, Value};

use crate::api::Api;
use crate::kubelet::Kubelets;
use crate::limits::{LOG_LINES, LOOK_EVERY, PATIENCE, TOKEN_S};
use crate::objects::{self, ACCOUNT};
use crate::plane::{Plane, API_PORT};
use crate::SuiteError;

/// Where a pod finds its token.
const ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The Service of most scenarios, and the label of its pods.
pub const SERVICE: &str = "gabion";

/// What all scenarios are given.
#[derive(Debug)]
pub struct World {
    /// The control plane.
    pub plane: Plane,
    /// The nodes.
    pub kubelets: Kubelets,
    /// The programs under test.
    pub programs: Programs,
    /// The `gabiond` of the release before; `None`: it was not built.
    pub previous: Option<PathBuf>,
}

/// A pod that is there.
#[derive(Clone, Debug)]
struct PodState {
    name: String,
    account: PathBuf,
}

/// The pods of one namespace.
#[derive(Debug)]
pub struct Cluster<'w> {
    /// Members and their network; member `i` is the pod in slot `i`.
    pub lab: Lab,
    /// Everything else.
    pub world: &'w mut World,
    /// The namespace.
    pub namespace: String,
    pods: BTreeMap<usize, PodState>,
    labels: BTreeMap<usize, String>,
    has_six: bool,
    made: usize,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As `kubectl delete pod`: it is told, and has its time.
    InOrder,
    /// As `kubectl delete pod --grace-period=0 --force`: the process is killed.
    NoGrace,
}

/// Which Services a member looks at; empty: all.
fn discovery(services: &[&str]) -> (String, String) {
    let (list, words) = (services.join(", "), services.join(" "));
    if services.is_empty() {
        let on = "gabion_discovery_kubernetes on;";
        return ("{kubernetes: true}".to_owned(), on.to_owned());
    }
    (
        format!("{{kubernetes: true, service_allow: [{list}]}}"),
        format!("gabion_discovery_kubernetes on; gabion_discovery_service_allow {words};"),
    )
}

/// Files of an account, as a kubelet renews them: all at once, behind a symbolic link.
fn write_account(dir: &Path, texts: [(&str, &str); 3]) -> Result<(), SuiteError> {
    let mut n = 1;
    while dir.join(format!("..{n}")).exists() {
        n += 1;
    }
    let folder = format!("..{n}");
    std::fs::create_dir_all(dir.join(&folder))?;
    for (name, text) in texts {
        std::fs::write(dir.join(&folder).join(name), text)?;
        let link = dir.join(name);
        if !link.is_symlink() {
            std::os::unix::fs::symlink(format!("..data/{name}"), link)?;
        }
    }
    std::os::unix::fs::symlink(folder, dir.join("..new"))?;
    std::fs::rename(dir.join("..new"), dir.join("..data"))?;
    Ok(())
}

impl<'w> Cluster<'w> {
    /// A namespace with the account and the role of members, and the Service [`SERVICE`]; the
    /// network of `spec`, in which no member runs yet.
    ///
    /// # Errors
    /// Any of it fails.
    pub async fn new(
        world: &'w mut World,
        namespace: &str,
        spec: LabSpec,
    ) -> Result<Cluster<'w>, SuiteError> {
        let api = world.plane.api.clone();
        let object = json!({ "metadata": { "name": namespace } });
        api.create("/api/v1/namespaces", &object).await?;
        let lab = Lab::prepare(&world.programs, spec).await?;
        let mut cluster = Cluster {
            lab,
            world,
            namespace: namespace.to_owned(),
            pods: BTreeMap::new(),
            labels: BTreeMap::new(),
            has_six: false,
            made: 0,
        };
        let account = json!({ "metadata": { "name": ACCOUNT } });
        let core = cluster.core();
        api.create(&format!("{core}/serviceaccounts"), &account)
            .await?;
        let roles = cluster.roles();
        let role = objects::role();
        api.create(&format!("{roles}/roles"), &role).await?;
        cluster.grant().await?;
        cluster.add_service(SERVICE, SERVICE).await?;
        for i in cluster.lab.all() {
            cluster.look_at(i, &[SERVICE]);
        }
        Ok(cluster)
    }

    /// Requests as the administrator.
    pub fn api(&self) -> &Api {
        &self.world.plane.api
    }

    /// The path of the namespace's core objects.
    pub fn core(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }

    fn roles(&self) -> String {
        let group = "/apis/rbac.authorization.k8s.io/v1/namespaces";
        format!("{group}/{}", self.namespace)
    }

    /// The path of the namespace's slices.
    pub fn slices(&self) -> String {
        let group = "/apis/discovery.k8s.io/v1/namespaces";
        format!("{group}/{}/endpointslices", self.namespace)
    }

    /// Lets members read slices.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn grant(&self) -> Result<(), SuiteError> {
        let path = format!("{}/rolebindings", self.roles());
        let binding = objects::role_binding(&self.namespace);
        self.api().create(&path, &binding).await.map(|_| ())
    }

    /// No longer lets them.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn revoke(&self) -> Result<(), SuiteError> {
        let path = format!("{}/rolebindings/{ACCOUNT}", self.roles());
        self.api().delete(&path, None).await.map(|_| ())
    }

    /// Adds a Service for the pods of `app`.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn add_service(&self, name: &str, app: &str) -> Result<(), SuiteError> {
        let path = format!("{}/services", self.core());
        let service = objects::service(name, app);
        self.api().create(&path, &service).await.map(|_| ())
    }

    /// Removes a Service.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn remove_service(&self, name: &str) -> Result<(), SuiteError> {
        let path = format!("{}/services/{name}", self.core());
        self.api().delete(&path, None).await.map(|_| ())
    }

    /// From its next start on, member `i` looks at these Services; at all where there are none.
    pub fn look_at(&mut self, i: usize, services: &[&str]) {
        let (discovery, directives) = discovery(services);
        self.lab.members[i].spec.pod = Some(Pod {
            discovery,
            directives,
            ..Pod::default()
        });
    }

    /// From its next start on, member `i` reads these peers from a file and asks no API.
    ///
    /// # Errors
    /// The system refuses.
    pub fn read_file(&mut self, i: usize, peers: &[SocketAddr]) -> Result<(), SuiteError> {
        let (dir, member) = (self.lab.dir().to_owned(), &mut self.lab.members[i]);
        member.set_peers(&dir, peers)?;
        let file = member.peers_file(&dir);
        let file = file.display();
        member.spec.pod = Some(Pod {
            discovery: format!("{{file: {file}}}"),
            directives: format!("gabion_peers_file {file};"),
            ..Pod::default()
        });
        Ok(())
    }

    /// Gives the pods in slot `i` another label than [`SERVICE`] from its next start on.
    pub fn label(&mut self, i: usize, app: &str) {
        self.labels.insert(i, app.to_owned());
    }

    /// From now on pods have an address of the other family, too, on which nobody listens.
    pub fn both_families(&mut self) {
        self.has_six = true;
    }

    /// Makes the objects of a pod in slot `i`, gives it its address, starts the member in it, and
    /// says that it is ready.
    ///
    /// # Errors
    /// The API refuses, or the member does not start.
    pub async fn start_pod(&mut self, i: usize) -> Result<(), SuiteError> {
        let node = format!("node-{}", i % 2 + 1);
        self.start_pod_on(i, &node).await?;
        self.set_ready(i, true).await
    }

    /// The same on a node, and it is not ready yet.
    ///
    /// # Errors
    /// The API refuses, or the member does not start.
    pub async fn start_pod_on(&mut self, i: usize, node: &str) -> Result<(), SuiteError> {
        self.make_pod(i, node).await?;
        self.set_ready(i, false).await?;
        self.lab.start_member(i).await?;
        Ok(())
    }

    /// Makes the object of a pod in slot `i`, and the files that a kubelet mounts in it.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn make_pod(&mut self, i: usize, node: &str) -> Result<(), SuiteError> {
        self.made += 1;
        self.world.kubelets.add(node).await?;
        let app = self.labels.get(&i).map_or(SERVICE, String::as_str);
        let name = format!("{app}-{}-{}", i + 1, self.made);
        let path = format!("{}/pods", self.core());
        let pod = objects::pod(&name, app, node);
        self.api().create(&path, &pod).await?;
        let account = self.lab.dir().join(format!("account-{name}"));
        std::fs::create_dir_all(&account)?;
        let state = PodState {
            name: name.clone(),
            account: account.clone(),
        };
        self.pods.insert(i, state);
        self.renew_token(i, &name).await?;
        let names = [
            ("KUBERNETES_SERVICE_HOST", LAB_ADDRESS.to_string()),
            ("KUBERNETES_SERVICE_PORT", API_PORT.to_string()),
            ("POD_IP", address(i).to_string()),
            ("POD_NAME", name),
            ("POD_NAMESPACE", self.namespace.clone()),
        ];
        let spec = &mut self.lab.members[i].spec;
        let pod = spec.pod.get_or_insert_default();
        pod.env = names.map(|(name, value)| (name.to_owned(), value)).into();
        pod.mount = Some((account, PathBuf::from(ACCOUNT_DIR)));
        Ok(())
    }

    /// Puts a new token for the pod in slot `i`, bound to it as before.
    ///
    /// # Errors
    /// The API refuses, or there is no such pod.
    pub async fn renew_own_token(&self, i: usize) -> Result<(), SuiteError> {
        let state = self.pods.get(&i);
        let state = state.ok_or_else(|| SuiteError::odd("there is no pod in this slot"))?;
        self.renew_token(i, &state.name).await
    }

    /// Puts a new token, which is bound to the pod `to`, where the pod in slot `i` finds it.
    ///
    /// # Errors
    /// The API refuses, or there is no such pod.
    pub async fn renew_token(&self, i: usize, to: &str) -> Result<(), SuiteError> {
        let state = self.pods.get(&i);
        let state = state.ok_or_else(|| SuiteError::odd("there is no pod in this slot"))?;
        let core = self.core();
        let pod = self.api().get(&format!("{core}/pods/{to}")).await?;
        let uid = &pod["metadata"]["uid"];
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": to, "uid": uid });
        let request = json!({
            "spec": { "expirationSeconds": TOKEN_S, "boundObjectRef": bound },
        });
        let path = format!("{core}/serviceaccounts/{ACCOUNT}/token");
        let answer = self.api().create(&path, &request).await?;
        let token = answer["status"]["token"].as_str();
        let token = token.ok_or_else(|| SuiteError::odd("a TokenRequest without a token"))?;
        let authority = std::fs::read_to_string(self.world.plane.authority())?;
        let texts = [
            ("token", token),
            ("ca.crt", &authority),
            ("namespace", &self.namespace),
        ];
        write_account(&state.account, texts)
    }

    fn pod_path(&self, i: usize) -> Result<String, SuiteError> {
        let state = self.pods.get(&i);
        let state = state.ok_or_else(|| SuiteError::odd("there is no pod in this slot"))?;
        Ok(format!("{}/pods/{}", self.core(), state.name))
    }

    /// Writes the status of the pod in slot `i`.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn set_ready(&self, i: usize, is_ready: bool) -> Result<(), SuiteError> {
        let path = format!("{}/status", self.pod_path(i)?);
        let four = address(i);
        let six = Ipv6Addr::from(0xfd77 << 112 | u128::from(u32::from(four)));
        let status = objects::pod_status(four, self.has_six.then_some(six), is_ready);
        self.api().patch(&path, &status).await.map(|_| ())
    }

    /// Whether the API calls the pod in slot `i` ready.
    ///
    /// # Errors
    /// No answer.
    pub async fn is_ready(&self, i: usize) -> Result<bool, SuiteError> {
        let pod = self.api().get(&self.pod_path(i)?).await?;
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions.any(|it| it["type"] == "Ready" && it["status"] == "True"))
    }

    /// Ends the pod in slot `i`; gives whether its process ended with 0, or was to be killed.
    ///
    /// # Errors
    /// The API refuses, or the member does not end.
    pub async fn end_pod(&mut self, i: usize, end: End) -> Result<bool, SuiteError> {
        let well = match end {
            End::NoGrace => {
                self.lab.members[i].kill();
                true
            }
            End::InOrder => {
                self.api().delete(&self.pod_path(i)?, None).await?;
                self.lab.members[i].stop().await?
            }
        };
        self.drop_pod(i).await?;
        Ok(well)
    }

    /// Deletes the object of the pod in slot `i` at once.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn drop_pod(&mut self, i: usize) -> Result<(), SuiteError> {
        let path = self.pod_path(i)?;
        self.api().delete(&path, Some(0)).await?;
        self.pods.remove(&i);
        Ok(())
    }

    /// The token that the pod in slot `i` finds now.
    ///
    /// # Errors
    /// There is no such pod.
    pub fn token(&self, i: usize) -> Result<String, SuiteError> {
        let state = self.pods.get(&i);
        let state = state.ok_or_else(|| SuiteError::odd("there is no pod in this slot"))?;
        Ok(std::fs::read_to_string(state.account.join("token"))?)
    }

    /// The endpoints of a Service, or of all: address, whether ready, whether ending.
    ///
    /// # Errors
    /// No answer.
    pub async fn endpoints(
        &self,
        service: Option<&str>,
    ) -> Result<BTreeMap<Ipv4Addr, (bool, bool)>, SuiteError> {
        let mut path = self.slices();
        if let Some(service) = service {
            path.push_str("?labelSelector=kubernetes.io%2Fservice-name%3D");
            path.push_str(service);
        }
        Ok(objects::endpoints(&self.api().get(&path).await?))
    }

    /// Waits until the slices of a Service name exactly these slots.
    ///
    /// # Errors
    /// They do not in time.
    pub async fn wait_slices(&self, service: &str, slots: &[usize]) -> Result<(), SuiteError> {
        let want: BTreeSet<Ipv4Addr> = slots.iter().map(|i| address(*i)).collect();
        let start = Instant::now();
        loop {
            let seen: BTreeSet<_> = self.endpoints(Some(service)).await?.into_keys().collect();
            if seen == want {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                let what = format!("the slices of {service} name {seen:?}, not {want:?}");
                return Err(late(what));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The peers of member `i` that discovery has named.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn peers(&self, i: usize) -> Result<BTreeSet<Ipv4Addr>, SuiteError> {
        let snapshot = self.lab.members[i].snapshot().await?;
        let peers = snapshot.pointer("/gossip/peers").and_then(Value::as_array);
        let named = peers.into_iter().flatten();
        let named = named.filter(|peer| peer["configured"] == true);
        let address = |peer: &Value| peer["address"].as_str()?.parse::<SocketAddr>().ok();
        let addresses = named.filter_map(address).filter_map(|peer| match peer {
            SocketAddr::V4(peer) => Some(*peer.ip()),
            SocketAddr::V6(_) => None,
        });
        Ok(addresses.collect())
    }

    /// What member `i` has as peers, unless these are exactly the others of `members`.
    async fn unlike(&self, i: usize, members: &[usize]) -> Result<Option<String>, SuiteError> {
        let others = members.iter().filter(|other| **other != i);
        let want: BTreeSet<Ipv4Addr> = others.map(|other| address(*other)).collect();
        let seen = self.peers(i).await?;
        let what = format!("member {} has the peers {seen:?}, not {want:?}", i + 1);
        Ok((seen != want).then_some(what))
    }

    /// Waits until discovery has named to each of `members` exactly the others of them.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn wait_named(&self, members: &[usize], most: Duration) -> Result<(), SuiteError> {
        for i in members {
            let start = Instant::now();
            while let Some(what) = self.unlike(*i, members).await? {
                if start.elapsed() > most {
                    return Err(late(what));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// Whether discovery has named at least `others` to member `i`.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn has_peers(&self, i: usize, others: &[usize]) -> Result<bool, SuiteError> {
        let seen = self.peers(i).await?;
        Ok(others.iter().all(|other| seen.contains(&address(*other))))
    }

    /// Looks for some seconds whether each of `members` has exactly the others as peers, all the
    /// while.
    ///
    /// # Errors
    /// One has not, or does not answer.
    pub async fn hold_named(&self, members: &[usize], seconds: f64) -> Result<(), SuiteError> {
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < seconds {
            for i in members {
                if let Some(what) = self.unlike(*i, members).await? {
                    let at = start.elapsed().as_secs_f64();
                    let log = self.lab.log(*i);
                    let last = log.lines().rev().take(LOG_LINES).collect::<Vec<_>>();
                    let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                    return Err(SuiteError::Odd(format!(
                        "{what}, {at:.1} s after all was well; the end of its log:\n{last}"
                    )));
                }
            }
            tokio::time::sleep(10 * LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until frames pass both ways between all of `members`, and none is a peer more.
    ///
    /// # Errors
    /// They do not in time.
    pub async fn wait_meshed(&self, members: &[usize]) -> Result<(), SuiteError> {
        self.wait_named(members, PATIENCE).await?;
        let peers = members.len() - 1;
        Ok(self.lab.wait_peers(members, peers, PATIENCE).await?)
    }

    /// Waits until the log of member `i` has this text.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn wait_said(&self, i: usize, text: &str) -> Result<(), SuiteError> {
        let what = format!("`{text}` in the log of member {}", i + 1);
        let said = until(&what, PATIENCE, || async {
            Ok(match self.lab.log(i).contains(text) {
                true => Ok(()),
                false => Err("it is not there".to_owned()),
            })
        });
        Ok(said.await?)
    }
}

/// Something did not come in time.
pub(crate) fn late(what: String) -> SuiteError {
    SuiteError::Lab(LabError::Late {
        what,
        seconds: PATIENCE.as_secs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_loader::local::RunDir;

    #[test]
    fn renewed_files_come_all_at_once() {
        let dir = RunDir::new("gabion-account").unwrap();
        for token in ["one", "two"] {
            let texts = [("token", token), ("ca.crt", "c"), ("namespace", "n")];
            write_account(dir.path(), texts).unwrap();
            let read = std::fs::read_to_string(dir.path().join("token")).unwrap();
            assert_eq!(read, token);
        }
        let link = std::fs::read_link(dir.path().join("..data")).unwrap();
        assert_eq!(link, Path::new("..2"));
    }

    #[test]
    fn both_doors_are_told_the_same() {
        let (gabiond, nginx) = discovery(&["a", "b"]);
        assert_eq!(gabiond, "{kubernetes: true, service_allow: [a, b]}");
        assert!(
            nginx.ends_with("gabion_discovery_service_allow a b;"),
            "{nginx}"
        );
        assert!(!discovery(&[]).0.contains("service_allow"));
    }
}
