//! Resolution by hickory, with the system's configuration or with given name servers.
//!
//! I own the resolver and its options. I promise that nothing is cached here, since the caller asks
//! by time to live, and that a changed `resolv.conf` is read after a failure. I never panic on what
//! a server answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::config::{NameServerConfigGroup, ResolverConfig};
use hickory_resolver::name_server::TokioConnectionProvider;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::proto::ProtoErrorKind;
use hickory_resolver::{ResolveError, TokioResolver};

use super::{Answer, Family, Resolve, Resolving};
use crate::limits::DNS_QUERY_TIMEOUT_MS;

/// The resolver, made when it is first needed and again after a failure.
pub(crate) struct System {
    servers: Vec<SocketAddr>,
    resolver: Option<TokioResolver>,
}

impl System {
    /// Asks `servers`, or those of the system when there are none.
    pub(crate) fn new(servers: Vec<SocketAddr>) -> Self {
        System {
            servers,
            resolver: None,
        }
    }

    fn build(&self) -> Result<TokioResolver, ResolveError> {
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let mut group = NameServerConfigGroup::new();
            for server in &self.servers {
                let one =
                    NameServerConfigGroup::from_ips_clear(&[server.ip()], server.port(), true);
                group.merge(one);
            }
            let config = ResolverConfig::from_parts(None, Vec::new(), group);
            TokioResolver::builder_with_config(config, TokioConnectionProvider::default())
        };
        let options = builder.options_mut();
        options.cache_size = 0;
        options.timeout = Duration::from_millis(DNS_QUERY_TIMEOUT_MS);
        options.attempts = 2;
        // Large sets of peers come in one answer rather than by a second question over TCP.
        options.edns0 = true;
        Ok(builder.build())
    }
}

impl Resolve for System {
    fn resolve<'r>(&'r mut self, name: &'r str) -> Resolving<'r> {
        Box::pin(async move {
            let resolver = match self.resolver.take().map_or_else(|| self.build(), Ok) {
                Ok(resolver) => resolver,
                Err(error) => {
                    let failed = || Family::Failed(format!("resolver configuration: {error}"));
                    return Answer {
                        v4: failed(),
                        v6: failed(),
                    };
                }
            };
            let (v4, v6) = futures_util::future::join(
                family(&resolver, name, RecordType::A),
                family(&resolver, name, RecordType::AAAA),
            )
            .await;
            let both_failed = matches!((&v4, &v6), (Family::Failed(_), Family::Failed(_)));
            self.resolver = (!both_failed).then_some(resolver);
            Answer { v4, v6 }
        })
    }
}

async fn family(resolver: &TokioResolver, name: &str, kind: RecordType) -> Family {
    match resolver.lookup(name, kind).await {
        Ok(lookup) => {
            let addresses: BTreeSet<_> = lookup.iter().filter_map(|data| data.ip_addr()).collect();
            // Aliases on the way to the addresses count as well: the shortest life decides.
            let ttl_s = lookup
                .record_iter()
                .map(|record| record.ttl())
                .min()
                .unwrap_or(0);
            if addresses.is_empty() {
                Family::Nothing
            } else {
                Family::Found(addresses, Duration::from_secs(u64::from(ttl_s)))
            }
        }
        Err(error) if is_nothing(&error) => Family::Nothing,
        Err(error) => Family::Failed(error.to_string()),
    }
}

/// Whether a server said that there is no such name or no such record. Refusals and server failures
/// come as the same kind of error, with another code.
fn is_nothing(error: &ResolveError) -> bool {
    matches!(
        error.proto().map(|proto| proto.kind()),
        Some(ProtoErrorKind::NoRecordsFound {
            response_code: ResponseCode::NXDomain | ResponseCode::NoError,
            ..
        })
    )
}
