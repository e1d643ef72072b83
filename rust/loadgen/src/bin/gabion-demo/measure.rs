//! What the demo measures: how fast news travels, and the load.
//!
//! Owns: the requests. Promises: latency counts from the scheduled time; the load is offered
//! whatever the answers. Never: judges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gabion_loader::local::http;
use gabion_loader::local::member::Member;
use gabion_loader::local::nginx::Nginx;
use gabion_loader::mix::MixSpec;
use gabion_loader::progress;
use gabion_loader::report::{Latencies, Report, Summary};
use gabion_loader::rls::{should_rate_limit, Descriptor, Entry, RateLimitRequest, UInt64Value};
use gabion_loader::run::{run, Live, Plan};
use gabion_loader::schedule::{Arrivals, Schedule};
use gabion_loader::target::Target;
use gabion_loader::template::{HitsField, Shape};
use tonic::transport::{Channel, Endpoint};

use crate::cluster::{Cluster, Served};
use crate::AnyError;

/// How long the load lasts.
pub(crate) const SECONDS: f64 = 10.0;
/// Requests per second through each door: nginx, Envoy, and gabiond directly.
const RATE_EACH_PER_S: f64 = 80.0;
/// Requests per second in all.
pub(crate) const RATE_PER_S: f64 = 3.0 * RATE_EACH_PER_S;
/// Hits whose way around is timed.
const PROBES: usize = 30;
/// The limit of the probe's rule.
const PROBE_LIMIT: usize = 60;
/// One hit must get around within this, or gossip does not work.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The load's results.
pub(crate) struct Load {
    pub(crate) nginx: Report,
    pub(crate) envoy: Report,
    /// At gabiond, as a service of its own would ask.
    pub(crate) direct: Report,
    /// Requests that reached the upstreams.
    pub(crate) served: Served,
    pub(crate) gossip_bytes_per_s: f64,
}

/// Times how long it takes until a hit counted at one member is seen by the others: by both gabiond
/// when it was counted in nginx, by the other gabiond when it was counted in one. What nginx has
/// heard cannot be read without a hit: that it hears is shown by the limit that holds.
pub(crate) async fn convergence(cluster: &Cluster) -> Result<Summary, AnyError> {
    let mut channels = Vec::new();
    for member in &cluster.members {
        channels.push(connect(member).await?);
    }
    // each member is asked once, so that each has a row for the probe: without one it would show
    // what others have counted only once that matters to its decisions
    let value = std::process::id().to_string();
    for channel in &channels {
        ask(channel, &value, 1).await?;
    }
    hit_nginx(&cluster.nginx, &value).await?;
    wait_agreed(&channels, &value, channels.len() + 1).await?;
    let mut times = Latencies::new();
    for i in 0..PROBES {
        let at = i % (channels.len() + 1);
        let asked = channels.get(at);
        let before = ask(asked.unwrap_or(&channels[0]), &value, 0).await?;
        match asked {
            Some(channel) => ask(channel, &value, 1).await.map(|_left| ())?,
            None => hit_nginx(&cluster.nginx, &value).await?,
        }
        let start = Instant::now();
        for (other, channel) in channels.iter().enumerate() {
            while other != at && ask(channel, &value, 0).await? >= before {
                if start.elapsed() > PROBE_TIMEOUT {
                    let from = asked.map_or("nginx".to_owned(), |_| format!("gabiond {}", at + 1));
                    let to = other + 1;
                    return Err(format!("gabiond {to} has not heard of {from}'s hit").into());
                }
            }
        }
        times.record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times.summary())
}

/// Waits until each of `channels` has heard of one hit at each of `members`.
async fn wait_agreed(channels: &[Channel], value: &str, members: usize) -> Result<(), AnyError> {
    let start = Instant::now();
    for channel in channels {
        let mut left = ask(channel, value, 0).await?;
        while left as usize != PROBE_LIMIT - members {
            if start.elapsed() > PROBE_TIMEOUT {
                return Err(format!("the members do not agree: {left} left at one").into());
            }
            left = ask(channel, value, 0).await?;
        }
    }
    Ok(())
}

/// One hit of the probe `value` in nginx.
async fn hit_nginx(nginx: &Nginx, value: &str) -> Result<(), AnyError> {
    let reply = http::get(nginx.listener, &format!("/probe?value={value}"), &[]).await?;
    match reply.status {
        200 => Ok(()),
        status => Err(format!("nginx answers a probe with {status}: {}", reply.body).into()),
    }
}

async fn connect(member: &Member) -> Result<Channel, AnyError> {
    Ok(Endpoint::from_shared(format!("http://{}", member.envoy))?
        .connect()
        .await?)
}

/// Asks for `hits` of the probe `value` (0 only reads); returns what is left after.
async fn ask(channel: &Channel, value: &str, hits: u64) -> Result<u32, AnyError> {
    let entry = Entry {
        key: "probe".to_owned(),
        value: value.to_owned(),
    };
    let hits_addend = Some(UInt64Value { value: hits });
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![Descriptor {
            entries: vec![entry],
            hits_addend,
        }],
        hits_addend: 0,
    };
    let answer = should_rate_limit(channel.clone(), request).await?;
    let status = answer
        .statuses
        .first()
        .ok_or("an answer without a status")?;
    Ok(status.limit_remaining)
}

/// Offers the load, a third through each door, all on one key. Arrivals are independent, as those
/// of many clients; their moments follow from `seed`.
pub(crate) async fn load(cluster: &Cluster, seed: u64) -> Result<Load, AnyError> {
    let plan = |targets: Vec<Target>, shape: Shape, seed: u64| -> Result<Plan, AnyError> {
        Ok(Plan {
            schedule: Schedule::constant(RATE_EACH_PER_S, SECONDS)?.spread(Arrivals::Independent),
            targets,
            mix: MixSpec::Single("api".to_owned()),
            seed,
            shape,
            concurrency: 256,
            connections: 1,
            timeout: Duration::from_secs(5),
        })
    };
    let direct: Result<Vec<Target>, _> = cluster
        .members
        .iter()
        .map(|member| member.envoy.to_string().parse())
        .collect();
    let direct_shape = Shape::grpc("edge", &["route={key}".to_owned()], HitsField::Request)?;
    let direct = plan(direct?, direct_shape, seed)?;
    let http = |listener: std::net::SocketAddr, seed: u64| -> Result<Plan, AnyError> {
        let through = vec![listener.to_string().parse()?];
        plan(through, Shape::http("/{key}/", &[])?, seed)
    };
    let envoy = http(cluster.envoy.listener, seed + 1)?;
    let nginx = http(cluster.nginx.listener, seed + 2)?;
    let total = direct.schedule.count() + envoy.schedule.count() + nginx.schedule.count();
    println!(
        "Sending {total} requests in {SECONDS} s, a third each to nginx, to Envoy and to gabiond \
         itself (seed {seed}):"
    );
    let live = Arc::new(Live::default());
    let before = cluster.served();
    let bytes = cluster.gossip_bytes().await?;
    let start = Instant::now();
    let shown = progress::show(Arc::clone(&live), total);
    let (direct, envoy, nginx) = tokio::join!(
        run(direct, Arc::clone(&live)),
        run(envoy, Arc::clone(&live)),
        run(nginx, live)
    );
    drop(shown);
    let bytes = cluster.gossip_bytes().await?.saturating_sub(bytes);
    let after = cluster.served();
    Ok(Load {
        nginx: nginx?,
        envoy: envoy?,
        direct: direct?,
        served: Served {
            envoy: after.envoy - before.envoy,
            nginx: after.nginx - before.nginx,
        },
        gossip_bytes_per_s: bytes as f64 / start.elapsed().as_secs_f64(),
    })
}
