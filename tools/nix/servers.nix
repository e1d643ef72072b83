# The servers of nginx-matrix/versions.toml that have a source of their own, one for each release
# line: { nginx-1_28 = ...; openresty = ...; }. Each keeps its configured tree, from which the
# module's bindings are made.
{ pkgs }:
let
  matrix = builtins.fromTOML (builtins.readFile ../../nginx-matrix/versions.toml);
  hasSource = row: row ? url && row ? sha256;
  rows = builtins.filter hasSource matrix.row;

  # "1.28.3" is of the line "nginx-1_28"; OpenResty has one line, whose last row counts.
  line =
    row:
    let
      number = builtins.match "([0-9]+)\\.([0-9]+)\\..*" row.core;
    in
    if row.distribution == "openresty" then
      "openresty"
    else
      "nginx-${builtins.elemAt number 0}_${builtins.elemAt number 1}";

  # OpenResty's bundle has nginx in build/nginx-VERSION once it is configured.
  build =
    row:
    pkgs.stdenv.mkDerivation {
      pname = row.distribution;
      version = row.core;
      src = pkgs.fetchurl { inherit (row) url sha256; };
      nativeBuildInputs = [ pkgs.perl ];
      buildInputs = [
        pkgs.pcre2
        pkgs.zlib
        pkgs.openssl
        pkgs.libxcrypt
      ];
      dontAddPrefix = true;
      configureFlags = matrix.source.configure;
      # nginx's configure knows none of the options that Nix adds for autoconf's.
      configurePlatforms = [ ];
      dontAddStaticConfigureFlags = true;
      dontDisableStatic = true;
      enableParallelBuilding = true;
      installPhase = ''
        runHook preInstall
        objs=objs
        [ -d objs ] || objs=$(echo build/nginx-*/objs)
        mkdir -p $out/sbin $out/tree
        cp $objs/nginx $out/sbin/nginx
        cp -r $(dirname $objs)/. $out/tree
        runHook postInstall
      '';
    };
in
builtins.listToAttrs (
  map (row: {
    name = line row;
    value = build row;
  }) (builtins.sort (a: b: builtins.compareVersions a.core b.core > 0) rows)
)
