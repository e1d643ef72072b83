//! Tells the module which nginx its bindings were made for.
fn main() {
    println!("cargo::rerun-if-env-changed=DEP_NGINX_BUILD");
    println!("cargo::rerun-if-changed=build.rs");
    let build = std::env::var("DEP_NGINX_BUILD").unwrap_or_default();
    println!("cargo::rustc-env=GABION_NGINX_BUILD={build}");
}
