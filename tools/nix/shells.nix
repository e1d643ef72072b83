# The shells of `nix develop`: one for everyone, one for each server, one for Kubernetes, one for the
# simulator in a browser.
{ pkgs, servers }:
let
  tools = [
    pkgs.bazel_7
    pkgs.bazel-buildtools
    pkgs.cargo
    pkgs.clippy
    pkgs.curl
    pkgs.git
    pkgs.nodejs
    pkgs.openssl
    pkgs.patchelf
    pkgs.procps
    pkgs.python3
    pkgs.rustc
    pkgs.rustfmt
    pkgs.skopeo
    pkgs.stdenv.cc
    pkgs.strace
    pkgs.umoci
    pkgs.valgrind
    pkgs.wrk
  ];

  shell =
    extra:
    pkgs.mkShell (
      extra
      // {
        packages = tools ++ (extra.packages or [ ]);
        RUST_BACKTRACE = "1";
      }
    );

  # What tools/nginx-module reads: the configured tree, and the server to test.
  forServer =
    name: server:
    shell {
      inherit name;
      packages = [
        pkgs.pcre2
        pkgs.zlib
        pkgs.openssl
      ];
      LIBCLANG_PATH = "${pkgs.lib.getLib pkgs.llvmPackages.libclang}/lib";
      NGINX_SOURCE_DIR = "${server}/tree";
      NGINX_BUILD_DIR = "${server}/tree/objs";
      NGINX_BINARY = "${server}/sbin/nginx";
    };
in
builtins.mapAttrs forServer servers
// {
  default = shell { name = "gabion"; };
  k8s = shell {
    name = "gabion-k8s";
    packages = [
      pkgs.kind
      pkgs.kubectl
      pkgs.kubernetes-helm
    ];
  };
  # Its rustc has the target wasm32-unknown-unknown. The version is the crate's in Cargo.toml.
  simulator = shell {
    name = "gabion-simulator";
    packages = [
      pkgs.binaryen
      pkgs.lld
      pkgs.wasm-bindgen-cli_0_2_108
    ];
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER = "wasm-ld";
  };
}
