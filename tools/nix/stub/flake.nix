# Stands in for nixpkgs where it cannot be had: its packages are links to this machine's programs, and
# what would be built is an empty folder. So flake.nix can be evaluated and its shells entered; that
# nixpkgs has an attribute, or what a package of it does, is not seen.
{
  description = "Offline stand-in for nixpkgs";

  outputs =
    { self }:
    let
      genAttrs =
        names: f:
        builtins.listToAttrs (
          map (name: {
            inherit name;
            value = f name;
          }) names
        );
      path = "@PATH@";
      packagesFor =
        system:
        let
          make =
            name: attributes:
            derivation (
              {
                inherit name system;
                builder = "/bin/bash";
                PATH = path;
              }
              // attributes
            );
          # A package with links to programs of the machine; those it lacks are left out.
          programs =
            name: list:
            make name {
              args = [
                "-c"
                "mkdir -p $out/bin; for p in ${builtins.concatStringsSep " " list}; do f=$(command -v $p) && ln -s $f $out/bin/$p; done; exit 0"
              ];
            };
          empty =
            name:
            make name {
              args = [
                "-c"
                # Bash is to be the last to close the log: on its end Nix ends the builder.
                "mkdir -p $out/sbin $out/tree/objs; exit 0"
              ];
            };
          one = name: programs name [ name ];
          build =
            attributes:
            let
              source = attributes.src or null;
            in
            builtins.seq (builtins.toJSON (builtins.attrNames attributes)) (
              builtins.seq source (empty "${attributes.pname}-${attributes.version}")
            );
        in
        {
          lib = {
            cleanSource = p: p;
            getLib = p: p;
            licenses.mit = "MIT";
          };
          stdenv = {
            cc = programs "cc" [
              "cc"
              "gcc"
              "g++"
              "ld"
              "ar"
            ];
            hostPlatform = { inherit system; };
            mkDerivation = build;
          };
          rustPlatform = {
            bindgenHook = empty "bindgen-hook";
            buildRustPackage = attributes: builtins.seq (builtins.readFile attributes.cargoLock.lockFile) (build attributes);
          };
          fetchurl =
            { url, sha256 }:
            if builtins.match "[0-9a-f]{64}" sha256 == null then
              throw "${url}: ${sha256} is no sha256"
            else
              empty "source";
          mkShell =
            {
              packages ? [ ],
              name ? "shell",
              ...
            }@attributes:
            make name (
              builtins.removeAttrs attributes [
                "packages"
                "name"
              ]
              // {
                outputs = [ "out" ];
                PATH = builtins.concatStringsSep ":" (map (p: "${p}/bin") packages ++ [ path ]);
                args = [
                  "-c"
                  "export >$out"
                ];
              }
            );
          bashInteractive = programs "bash-interactive" [ "bash" ];
          binaryen = one "wasm-opt";
          bazel_7 = one "bazel";
          bazel-buildtools = one "buildifier";
          cargo = one "cargo";
          clippy = programs "clippy" [
            "cargo-clippy"
            "clippy-driver"
          ];
          curl = one "curl";
          git = one "git";
          kind = one "kind";
          kubectl = one "kubectl";
          kubernetes-helm = one "helm";
          libxcrypt = empty "libxcrypt";
          lld = one "wasm-ld";
          llvmPackages.libclang = empty "libclang";
          nixfmt-tree = one "treefmt";
          nodejs = one "node";
          openssl = one "openssl";
          patchelf = one "patchelf";
          pcre2 = empty "pcre2";
          perl = one "perl";
          procps = programs "procps" [
            "kill"
            "ps"
          ];
          python3 = one "python3";
          rustc = programs "rustc" [
            "rustc"
            "rustdoc"
          ];
          rustfmt = programs "rustfmt" [
            "rustfmt"
            "cargo-fmt"
          ];
          skopeo = one "skopeo";
          strace = one "strace";
          umoci = one "umoci";
          valgrind = one "valgrind";
          wasm-bindgen-cli_0_2_108 = one "wasm-bindgen";
          wrk = one "wrk";
          zlib = empty "zlib";
        };
    in
    {
      lib = { inherit genAttrs; };
      legacyPackages = genAttrs [
        "x86_64-linux"
        "aarch64-linux"
      ] packagesFor;
    };
}
