//! gabiond: an envoy.service.ratelimit.v3 server that decides locally against the cluster-wide count.
