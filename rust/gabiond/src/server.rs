//! The life of a process: bind, serve, drain, end.
//!
//! I own the two servers, the health service and the signals. I promise that a taken port is an
//! error before anything is served, that SIGTERM lets open calls finish, and that the process ends
//! within its drain time whatever its clients do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Server;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;

use crate::admin;
use crate::config::{self, Bind, Config, Tls};
use crate::json;
use crate::limits;
use crate::member::{Addresses, Member, StartError};
use crate::net::{Bounds, Gate};
use crate::observe::{Observer, DRAIN_EVERY};
use crate::protocol::{RateLimitServiceServer, FILE_DESCRIPTORS, SERVICE_NAME};
use crate::reload::{self, Origin, Reloads};
use crate::service::Service;
use crate::systemd;
use crate::tls::{self, Source, TlsError};

/// Longest wait for the gossip socket before the ports file is written without it.
const GOSSIP_PATIENCE: Duration = Duration::from_secs(1);
/// How often an awaited condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Why a process ends with an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address cannot be had.
    #[error(
        "{setting}: {addr} cannot be bound: {error}. Nothing is served; free the address or set \
         another {setting}"
    )]
    Bind {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        addr: Bind,
        /// What the system says.
        error: io::Error,
    },
    /// Certificates cannot be used.
    #[error("{section}: {error}. Nothing is served")]
    Tls {
        /// The section of the configuration.
        section: &'static str,
        /// What is wrong.
        error: TlsError,
    },
    /// The ports file cannot be written.
    #[error("{path}: the ports file cannot be written: {error}")]
    PortsFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The member could not be made.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system gives no signals, threads or event loop.
    #[error("the system gives no {what}: {error}. Raise the limits of this process")]
    System {
        /// What is missing.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// A server ended by itself.
    #[error("the {which} server ended by itself: {why}")]
    Ended {
        /// Which one.
        which: &'static str,
        /// Why.
        why: String,
    },
}

/// Runs a member until SIGTERM or SIGINT, then drains it.
///
/// # Errors
/// [`ServeError`] when it could not start or a server ended by itself.
pub fn run(config: Config, origin: Origin, ports_file: Option<&Path>) -> Result<(), ServeError> {
    allow_open_files();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.runtime.worker_threads {
        builder.worker_threads(threads);
    }
    let runtime = builder
        .thread_name("gabiond")
        .enable_all()
        .build()
        .map_err(|error| ServeError::System {
            what: "event loop",
            error,
        })?;
    let result = runtime.block_on(serve(config, origin, ports_file));
    // Whatever still runs had its drain time: do not wait for it.
    runtime.shutdown_background();
    result
}

/// Takes as many open files as the system lets this process have: its connections need them, and
/// the usual 1,024 are fewer than the places of the gRPC port.
fn allow_open_files() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::info!(%error, "the limit of open files stays at {:?}", limit.current);
    }
}

async fn serve(
    config: Config,
    origin: Origin,
    ports_file: Option<&Path>,
) -> Result<(), ServeError> {
    let drain_timeout = config.drain_timeout;
    // Signals first: one that comes while we start must end us in order, too.
    let signals = Signals::new()?;
    let server = config.server.clone();
    let mut envoy = envoy_gate(&config)?;
    let mut admin = admin_gate(&config)?;
    let mut json = json_gate(&config)?;
    let gates = [Some(&mut envoy), admin.as_mut(), json.as_mut()];
    // Removed when this function ends, however it ends.
    let _files = gates.map(|gate| gate.and_then(Gate::take_file));
    let member = Arc::new(Member::start(config)?);
    let gates = [
        ("envoy", Some(&envoy)),
        ("admin", admin.as_ref()),
        ("json", json.as_ref()),
    ];
    announce(&member, gates, ports_file).await?;
    for gate in [Some(&envoy), admin.as_ref(), json.as_ref()]
        .into_iter()
        .flatten()
    {
        if let Some(source) = gate.view().tls() {
            tokio::spawn(Arc::clone(source).watch());
        }
    }
    tokio::spawn(watch_decisions(Arc::clone(member.observer())));
    let reloads = start_reloads(&member, origin)?;
    let (stop, stopped) = watch::channel(false);
    let body_bytes = server.max_request_bytes;
    let json_router = json::router(Arc::clone(&member), body_bytes);
    let json = json.map(|gate| serve_until(gate, json_router, wait_for(&stopped)));
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_serving::<RateLimitServiceServer<Service>>()
        .await;
    let mut grpc = tokio::spawn(serve_grpc(
        envoy,
        server,
        Arc::clone(&member),
        health,
        wait_for(&stopped),
    ));
    let admin = admin.map(|gate| serve_http(gate, admin::router(Arc::clone(&member))));
    systemd::ready();
    tokio::spawn(systemd::keep_alive());
    tokio::select! {
        name = signals.next(&reloads) => {
            tracing::info!("{name}: draining for at most {drain_timeout:?}");
        }
        ended = &mut grpc => {
            let why = format!("{ended:?}");
            return Err(ServeError::Ended { which: "gRPC", why });
        }
    }
    drain(&member, &reporter, &stop).await;
    end(member, (grpc, json), drain_timeout).await;
    if let Some(admin) = admin {
        admin.abort();
    }
    tracing::info!("ended");
    Ok(())
}

/// Lets open calls finish and says goodbye to the peers, for at most `drain_timeout`.
async fn end<T, J>(
    member: Arc<Member>,
    (grpc, json): (JoinHandle<T>, Option<JoinHandle<J>>),
    drain_timeout: Duration,
) {
    let until = Instant::now() + drain_timeout;
    let all = async {
        let _ = grpc.await;
        if let Some(json) = json {
            let _ = json.await;
        }
    };
    let finished = tokio::time::timeout_at(until, all).await.is_ok();
    if !finished {
        tracing::warn!(
            "clients still had connections open after {drain_timeout:?}; they are closed now"
        );
    }
    let left = until
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(100));
    let _ = tokio::task::spawn_blocking(move || member.leave(left)).await;
}

fn start_reloads(member: &Arc<Member>, origin: Origin) -> Result<Reloads, ServeError> {
    let reloads = reload::start(member, origin).map_err(|error| ServeError::System {
        what: "thread",
        error,
    })?;
    member.set_reloader(reloads.clone());
    Ok(reloads)
}

/// Empties what decisions left behind for people, again and again.
async fn watch_decisions(observer: Arc<Observer>) {
    let mut ticks = tokio::time::interval(DRAIN_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        observer.drain();
    }
}

fn envoy_gate(config: &Config) -> Result<Gate, ServeError> {
    let bounds = Bounds::from(&config.server);
    let tls = certificates("tls", config.tls.as_ref(), tls::GRPC)?;
    gate("envoy_bind", &config.envoy_bind, bounds, tls)
}

fn admin_gate(config: &Config) -> Result<Option<Gate>, ServeError> {
    let Some(bind) = &config.admin_bind else {
        return Ok(None);
    };
    let bounds = Bounds {
        connections: limits::ADMIN_CONNECTIONS,
        idle: Some(limits::ADMIN_IDLE),
        ..Bounds::from(&config.server)
    };
    let tls = certificates("admin_tls", config.admin_tls.as_ref(), tls::HTTP)?;
    gate("admin_bind", bind, bounds, tls).map(Some)
}

fn json_gate(config: &Config) -> Result<Option<Gate>, ServeError> {
    let Some(bind) = &config.json_bind else {
        return Ok(None);
    };
    let bounds = Bounds::from(&config.server);
    let tls = certificates("json_tls", config.json_tls.as_ref(), tls::HTTP)?;
    gate("json_bind", bind, bounds, tls).map(Some)
}

fn certificates(
    section: &'static str,
    tls: Option<&Tls>,
    protocols: &'static [&'static [u8]],
) -> Result<Option<Arc<Source>>, ServeError> {
    tls.map(|tls| Source::start(section, tls.clone(), protocols).map(Arc::new))
        .transpose()
        .map_err(|error| ServeError::Tls { section, error })
}

fn gate(
    setting: &'static str,
    bind: &Bind,
    bounds: Bounds,
    tls: Option<Arc<Source>>,
) -> Result<Gate, ServeError> {
    Gate::bind(bind, bounds, tls).map_err(|error| ServeError::Bind {
        setting,
        addr: bind.clone(),
        error,
    })
}

/// Says and writes down which addresses were bound.
async fn announce(
    member: &Member,
    gates: [(&'static str, Option<&Gate>); 3],
    ports_file: Option<&Path>,
) -> Result<(), ServeError> {
    for notice in member.notices().iter() {
        tracing::info!("{notice}");
    }
    let patience = Instant::now() + GOSSIP_PATIENCE;
    while member.has_gossip() && member.addresses().gossip.is_none() && Instant::now() < patience {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let bound = gates.map(|(_, gate)| gate.map(|gate| gate.bound().clone()));
    member.set_addresses(Addresses {
        pid: std::process::id(),
        envoy: bound[0].clone(),
        admin: bound[1].clone(),
        json: bound[2].clone(),
        gossip: None,
    });
    let views = gates.map(|(name, gate)| gate.map(|gate| (name, gate.view())));
    member.set_ports(views.into_iter().flatten().collect());
    let addresses = member.addresses();
    tracing::info!(
        "gabiond {} serves: envoy={} admin={} gossip={} rules={}",
        env!("CARGO_PKG_VERSION"),
        shown(addresses.envoy.as_ref()),
        shown(addresses.admin.as_ref()),
        shown(addresses.gossip.as_ref()),
        member.engine().policy().rules().rules().len(),
    );
    if let Some(path) = ports_file {
        let failed = |error| ServeError::PortsFile {
            path: path.to_owned(),
            error,
        };
        let text = serde_json::to_string(&addresses).map_err(|e| failed(e.into()))?;
        // By rename, so that a reader never sees half of it.
        let part = path.with_extension("part");
        std::fs::write(&part, text + "\n").map_err(failed)?;
        std::fs::rename(&part, path).map_err(failed)?;
    }
    Ok(())
}

fn shown(addr: Option<&impl ToString>) -> String {
    addr.map_or("off".to_owned(), ToString::to_string)
}

/// A gRPC server with gabiond's bounds and keepalive; public so that what it is measured against
/// has the same.
pub fn grpc_server(bounds: &config::Server) -> Server {
    let server = Server::builder()
        .max_concurrent_streams(bounds.max_streams)
        .http2_keepalive_interval(bounds.keepalive_interval)
        .http2_keepalive_timeout(Some(bounds.keepalive_timeout))
        .http2_max_header_list_size(bounds.max_header_bytes)
        .http2_max_pending_accept_reset_streams(Some(limits::RESET_STREAMS))
        .http2_max_local_error_reset_streams(Some(limits::FAULTY_STREAMS));
    match bounds.max_connection_age {
        None => server,
        // No grace: with one, tonic closes without a GOAWAY, and calls are lost.
        Some(age) => server.max_connection_age(age),
    }
}

/// What gRPC reflection shows; `None` when it is off.
fn reflection(bounds: &config::Server) -> Option<tonic_reflection::server::Builder<'static>> {
    bounds.reflection.then(|| {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    })
}

fn serve_http(gate: Gate, router: axum::Router) -> JoinHandle<io::Result<()>> {
    tokio::spawn(async move { axum::serve(gate, router).await })
}

/// Serves until it is stopped, and then until open calls are answered.
fn serve_until(
    gate: Gate,
    router: axum::Router,
    stopped: impl std::future::Future<Output = ()> + Send + 'static,
) -> JoinHandle<io::Result<()>> {
    let server = axum::serve(gate, router).with_graceful_shutdown(stopped);
    tokio::spawn(async move { server.await })
}

async fn serve_grpc(
    gate: Gate,
    bounds: config::Server,
    member: Arc<Member>,
    health: HealthServer<impl Health>,
    stopped: impl std::future::Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let service = RateLimitServiceServer::new(Service::new(Arc::clone(member.engine())))
        .max_decoding_message_size(bounds.max_request_bytes);
    // Descriptors are part of the program: that they parse is proven by a test.
    let v1 = reflection(&bounds).and_then(|builder| builder.build_v1().ok());
    let v1alpha = reflection(&bounds).and_then(|builder| builder.build_v1alpha().ok());
    grpc_server(&bounds)
        .add_service(service)
        .add_service(health)
        .add_optional_service(v1)
        .add_optional_service(v1alpha)
        .serve_with_incoming_shutdown(gate.into_stream(), stopped)
        .await
}

/// Says NOT_SERVING, then stops accepting.
async fn drain(member: &Member, reporter: &HealthReporter, stop: &watch::Sender<bool>) {
    systemd::stopping();
    member.start_draining();
    for name in ["", SERVICE_NAME] {
        reporter
            .set_service_status(name, tonic_health::ServingStatus::NotServing)
            .await;
    }
    stop.send_replace(true);
}

fn wait_for(stopped: &watch::Receiver<bool>) -> impl std::future::Future<Output = ()> + 'static {
    let mut stopped = stopped.clone();
    async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    }
}

struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, ServeError> {
        let listen = |kind| {
            signal(kind).map_err(|error| ServeError::System {
                what: "signals",
                error,
            })
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// The name of the signal that ends the process; SIGHUP asks for a reload meanwhile.
    async fn next(mut self, reloads: &Reloads) -> &'static str {
        loop {
            tokio::select! {
                _ = self.term.recv() => return "SIGTERM",
                _ = self.int.recv() => return "SIGINT",
                _ = self.hup.recv() => reloads.ask("SIGHUP"),
            }
        }
    }
}
