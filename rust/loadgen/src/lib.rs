//! Open-loop load for gRPC and HTTP, with reports.
