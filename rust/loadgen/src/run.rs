//! Runs a plan: the open loop.
//!
//! Owns: the pacing thread, the queue between it and the senders, and the limit on requests in
//! flight. Promises: what is offered never waits for an answer; latency counts from the scheduled
//! time, so a stall of the server is seen by every request due during it (no coordinated omission);
//! the queue holds at most [`MAX_WAITING`]; a run ends within its duration plus two timeouts.
//! Never: drops a request without reporting it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, Semaphore};

use crate::client::{Client, Outcome};
use crate::limits::{MAX_CONCURRENCY, MAX_WAITING};
use crate::mix::{Draw, Mix, MixSpec};
use crate::report::{Recorder, Report};
use crate::schedule::Schedule;
use crate::target::{Rotation, Target, TargetError};
use crate::template::Shape;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When each request is due.
    pub schedule: Schedule,
    /// Where requests go.
    pub targets: Vec<Target>,
    /// Which keys they carry.
    pub mix: MixSpec,
    /// Seed of the key mix.
    pub seed: u64,
    /// What they say.
    pub shape: Shape,
    /// Requests in flight at once, over all targets.
    pub concurrency: usize,
    /// HTTP/2 connections for each gRPC target.
    pub connections: usize,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Why a run did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No target, or too many. Nothing was sent.
    #[error(transparent)]
    Targets(#[from] TargetError),
    /// A URL that gRPC refuses. Nothing was sent; correct the target.
    #[error("a target cannot be used for gRPC: {0}")]
    Endpoint(#[from] tonic::transport::Error),
    /// The limit on requests in flight is out of range. Nothing was sent.
    #[error("concurrency must be from 1 to {MAX_CONCURRENCY}, not {0}")]
    Concurrency(usize),
    /// The pacing thread could not start or ended badly. What was sent is lost to the report.
    #[error("the pacing thread failed: {0}")]
    Pacer(std::io::Error),
}

/// Counters that can be read while the run goes on, and the way to stop it early.
#[derive(Debug, Default)]
pub struct Live {
    /// Requests due so far.
    pub due: AtomicU64,
    /// Answers so far: let through.
    pub admitted: AtomicU64,
    /// Answers so far: over a limit.
    pub denied: AtomicU64,
    /// Requests that came to neither.
    pub errors: AtomicU64,
    stop: AtomicBool,
}

impl Live {
    /// Ends the schedule now; what is in flight is waited for.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Admitted => &self.admitted,
            Outcome::Denied => &self.denied,
            Outcome::Error(_) => &self.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A request on its way from the schedule to a sender.
struct Job {
    n: u64,
    due: Instant,
    target: usize,
    draw: Draw,
}

/// Runs `plan` to its end and reports.
///
/// # Errors
/// The plan cannot be run; failures of single requests are part of the report instead.
pub async fn run(plan: Plan, live: Arc<Live>) -> Result<Report, RunError> {
    if !(1..=MAX_CONCURRENCY).contains(&plan.concurrency) {
        return Err(RunError::Concurrency(plan.concurrency));
    }
    let rotation = Rotation::new(&plan.targets)?;
    let client = Client::new(
        plan.shape.clone(),
        &plan.targets,
        plan.connections,
        plan.timeout,
    )?;
    let urls: Vec<String> = plan.targets.iter().map(|t| t.url.clone()).collect();
    let recorder = Arc::new(Mutex::new(Recorder::new(&urls, plan.seed)));
    let (queue, jobs) = mpsc::channel(MAX_WAITING);
    let start = Instant::now();
    let pacer = Pacer {
        plan: plan.clone(),
        rotation,
        queue,
        live: Arc::clone(&live),
        start,
    };
    let pacer = std::thread::Builder::new()
        .name("pacer".into())
        .spawn(move || pacer.run());
    let pacer = pacer.map_err(RunError::Pacer)?;
    let sender = Sender {
        client: Arc::new(client),
        recorder: Arc::clone(&recorder),
        live,
    };
    sender.run(jobs, &plan, start).await;
    // the queue is closed, so the pacer is at its end: joining does not block
    let unsent = pacer
        .join()
        .map_err(|_| RunError::Pacer(std::io::Error::other("panicked")))?;
    let elapsed_s = start.elapsed().as_secs_f64();
    lock(&recorder).unsent(unsent);
    let urls_only = Recorder::new(&urls, plan.seed);
    let recorder = std::mem::replace(&mut *lock(&recorder), urls_only);
    Ok(recorder.finish(elapsed_s))
}

/// Offers each request at its time, from a thread of its own: a timer of the runtime would be
/// coarser (1 ms) and would share its delays.
struct Pacer {
    plan: Plan,
    rotation: Rotation,
    queue: mpsc::Sender<Job>,
    live: Arc<Live>,
    start: Instant,
}

impl Pacer {
    /// Returns how many requests found the queue full.
    fn run(mut self) -> u64 {
        let mut mix = Mix::new(self.plan.mix.clone(), self.plan.seed);
        let mut unsent = 0;
        for (n, due_ns) in (0..).zip(self.plan.schedule.moments(self.plan.seed)) {
            let due = self.start + Duration::from_nanos(due_ns);
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            if self.live.stopped() {
                break;
            }
            let job = Job {
                n,
                due,
                target: self.rotation.next_target(),
                draw: mix.draw(),
            };
            self.live.due.fetch_add(1, Ordering::Relaxed);
            if self.queue.try_send(job).is_err() {
                unsent += 1;
            }
        }
        unsent
    }
}

#[derive(Clone)]
struct Sender {
    client: Arc<Client>,
    recorder: Arc<Mutex<Recorder>>,
    live: Arc<Live>,
}

impl Sender {
    /// Sends jobs until the schedule has ended and every answer is in.
    async fn run(self, mut jobs: mpsc::Receiver<Job>, plan: &Plan, start: Instant) {
        let slots = Arc::new(Semaphore::new(plan.concurrency));
        let last_due = Duration::from_nanos(plan.schedule.due_ns(plan.schedule.count()));
        let give_up = start + last_due + plan.timeout;
        while let Some(job) = jobs.recv().await {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                break;
            };
            if Instant::now() > give_up {
                lock(&self.recorder).unsent(1);
                continue;
            }
            let sender = self.clone();
            tokio::spawn(async move {
                sender.send(job).await;
                drop(slot);
            });
        }
        // all slots free again means that nothing is in flight
        let all = u32::try_from(plan.concurrency).unwrap_or(u32::MAX);
        let _ = slots.acquire_many(all).await;
    }

    async fn send(&self, job: Job) {
        let lag_ns = ns_since(job.due);
        let outcome = self.client.call(job.target, &job.draw, job.n).await;
        let latency_ns = ns_since(job.due);
        self.live.count(&outcome);
        lock(&self.recorder).answered(job.target, &outcome, lag_ns, latency_ns);
    }
}

fn ns_since(due: Instant) -> u64 {
    u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A panic in a sender must not hide the figures of all the others.
fn lock(recorder: &Mutex<Recorder>) -> std::sync::MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}
