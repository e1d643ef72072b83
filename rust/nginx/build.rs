//! Tells the module which nginx its bindings were made for: version, and whose build.

use std::path::Path;

fn main() {
    for name in [
        "DEP_NGINX_BUILD",
        "DEP_NGINX_BUILD_DIR",
        "DEP_NGINX_FEATURES",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let build = of("DEP_NGINX_BUILD");
    println!("cargo::rustc-env=GABION_NGINX_BUILD={build}");
    if build.is_empty() {
        return; // without the feature there is no nginx
    }
    // Other layouts than that of `--with-compat` and PCRE would be refused by nginx on loading.
    let features = of("DEP_NGINX_FEATURES");
    for needed in ["compat", "pcre", "http"] {
        assert!(
            features.split(',').any(|feature| feature == needed),
            "the nginx sources are configured without {needed}; configure them with --with-compat, \
             and with PCRE installed (docs/building-module.md)"
        );
    }
    let config = Path::new(&of("DEP_NGINX_BUILD_DIR")).join("ngx_auto_config.h");
    let text = std::fs::read_to_string(&config).unwrap_or_default();
    let configured = text.lines().find(|line| line.contains("NGX_CONFIGURE"));
    let configured = configured.unwrap_or_default().replace('\\', "");
    println!("cargo::rerun-if-changed={}", config.display());
    println!("cargo::rustc-env=GABION_NGINX_CONFIGURE={configured}");
}
