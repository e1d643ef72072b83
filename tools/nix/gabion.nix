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
        buildType = "module";
        cargoBuildFlags = [
          "--package=gabion-nginx"
          "--features=ngx-module"
          "--lib"
        ];
        installPhase = ''
          runHook preInstall
          find target -name libgabion_nginx.so -path '*module/*' -exec \
            install -D {} $out/lib/nginx/modules/ngx_http_gabion_module.so ';' -quit
          runHook postInstall
        '';
      }
    );
}
