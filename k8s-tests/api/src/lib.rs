//! Real members as pods of a real Kubernetes API, in network namespaces.
//!
//! Owns: a control plane (etcd, kube-apiserver, kube-controller-manager) as plain processes, what a
//! kubelet would do for the pods it starts, and the scenarios. Promises: nothing of a scenario
//! outlives it; slices are written by Kubernetes' own controller; members get the tokens and the
//! roles that a user's pods have. Never: runs in the namespaces of the machine, installs anything.
#![forbid(unsafe_code)]

pub mod api;
pub mod cluster;
pub mod dry_run;
pub mod error;
pub mod kubelet;
pub mod limits;
pub mod moments;
pub mod objects;
pub mod plane;
pub mod report;
pub mod scenarios;

pub use error::SuiteError;
