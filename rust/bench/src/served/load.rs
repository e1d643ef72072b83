//! Calls on a server: one by one, and closed loops of many.

use std::net::SocketAddr;
use std::time::Duration;

use gabion_server::protocol::{
    descriptor, request, Code, RateLimitRequest, RateLimitResponse, RateLimitServiceClient,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use crate::limits::{RATIO_CONNECTIONS, RATIO_STREAMS};
use crate::BenchError;

pub(crate) type Client = RateLimitServiceClient<Channel>;

pub(crate) async fn connect(addr: SocketAddr) -> Result<Client, BenchError> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))?.tcp_nodelay(true);
    Ok(RateLimitServiceClient::new(endpoint.connect().await?))
}

/// A request of one hit on `key`.
pub(crate) fn hit(key: &str) -> RateLimitRequest {
    request("bench", vec![descriptor(&[("key", key)])])
}

/// A request of one hit on `key` under each of `descriptors` descriptors.
pub(crate) fn hits(key: &str, descriptors: usize) -> RateLimitRequest {
    let one = |i: usize| descriptor(&[(DESCRIPTOR_KEYS[i], key)]);
    request("bench", (0..descriptors).map(one).collect())
}

/// The keys of the descriptors of [`hits`].
pub(crate) const DESCRIPTOR_KEYS: [&str; 10] = [
    "key", "key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9",
];

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) admitted: bool,
    /// Seconds until the window ends, rounded up.
    pub(crate) reset_s: u64,
}

pub(crate) fn said(answer: &RateLimitResponse) -> Result<Said, BenchError> {
    let odd = || BenchError::Void(format!("an answer that says too little: {answer:?}"));
    let status = answer.statuses.first().ok_or_else(odd)?;
    let reset = status.duration_until_reset.as_ref().ok_or_else(odd)?;
    let admitted = match Code::try_from(answer.overall_code) {
        Ok(Code::Ok) => true,
        Ok(Code::OverLimit) => false,
        _ => return Err(odd()),
    };
    Ok(Said {
        admitted,
        reset_s: u64::try_from(reset.seconds).map_err(|_| odd())?,
    })
}

pub(crate) async fn ask(client: &mut Client, key: &str) -> Result<Said, BenchError> {
    said(&client.should_rate_limit(hit(key)).await?.into_inner())
}

/// What is left of the limit that an answer names; `None` when it names none.
pub(crate) async fn remaining(client: &mut Client, key: &str) -> Result<Option<u32>, BenchError> {
    let answer = client.should_rate_limit(hit(key)).await?.into_inner();
    let status = answer.statuses.first();
    Ok(status.and_then(|status| {
        status
            .current_limit
            .as_ref()
            .map(|_| status.limit_remaining)
    }))
}

/// Keeps [`RATIO_CONNECTIONS`] x [`RATIO_STREAMS`] calls open for `length`; gives how many were
/// answered. Each call has a key of its own loop, so that rows are warm and never run out.
pub(crate) async fn closed_loops(
    addr: SocketAddr,
    descriptors: usize,
    length: Duration,
) -> Result<u64, BenchError> {
    let mut loops = JoinSet::new();
    let until = Instant::now() + length;
    for connection in 0..RATIO_CONNECTIONS {
        let client = connect(addr).await?;
        for stream in 0..RATIO_STREAMS {
            let mut client = client.clone();
            let request = hits(&format!("client-{connection}-{stream}"), descriptors);
            loops.spawn(async move {
                let mut answered = 0u64;
                while Instant::now() < until {
                    client.should_rate_limit(request.clone()).await?;
                    answered += 1;
                }
                Ok::<u64, tonic::Status>(answered)
            });
        }
    }
    let mut sum = 0;
    while let Some(ended) = loops.join_next().await {
        sum += ended.map_err(|e| BenchError::Void(e.to_string()))??;
    }
    Ok(sum)
}
