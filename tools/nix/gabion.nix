# gabiond, and the module for a server of servers.nix.
{ pkgs, version }:
let
  src = pkgs.lib.cleanSource ../..;
  common = {
    inherit src version;
    cargoLock.lockFile = ../../Cargo.lock;
    # Tests start servers and measure waits; `./tools/test` and Bazel run them.
    doCheck = false;
    meta.license = pkgs.lib.licenses.mit;
  };
in
{
  gabiond = pkgs.rustPlatform.buildRustPackage (
    common
    // {
      pname = "gabiond";
      cargoBuildFlags = [
        "--package=gabion-server"
        "--bin=gabiond"
      ];
      nativeBuildInputs = [ pkgs.git ];
    }
  );

  module =
    name: server:
    pkgs.rustPlatform.buildRustPackage (
      common
      // {
        pname = "gabion-module-${name}";
        nativeBuildInputs = [ pkgs.rustPlatform.bindgenHook ];
        buildInputs = [
          pkgs.pcre2
          pkgs.zlib
          pkgs.openssl
        ];
        NGINX_SOURCE_DIR = "${server}/tree";
        NGINX_BUILD_DIR = "${server}/tree/objs";
        # Only the shared object: beside an rlib there is no optimisation across crates, and the
        # package builder's own phase builds both.
        buildPhase = ''
          runHook preBuild
          cargo rustc --offline --locked -j "$NIX_BUILD_CORES" --profile module \
            -p gabion-nginx --features ngx-module --lib --crate-type cdylib
          runHook postBuild
        '';
        installPhase = ''
          runHook preInstall
          install -D target/module/libgabion_nginx.so \
            $out/lib/nginx/modules/ngx_http_gabion_module.so
          runHook postInstall
        '';
      }
    );
}
