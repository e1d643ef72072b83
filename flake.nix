# Toolchains and packages by Nix. docs/building.md says which parts were run, and where.
#
#   nix develop                  everything to build and test with cargo or Bazel
#   nix develop .#nginx-1_28     also that nginx, with what `tools/nginx-module` needs
#   nix develop .#openresty      also OpenResty
#   nix develop .#k8s            also what talks to a Kubernetes cluster
#   nix develop .#simulator      also what compiles for browsers
#   nix build                    gabiond; `nix build .#module-nginx-1_28` is the module
{
  description = "A distributed rate limiter for nginx and Envoy";

  # The branch nixos-25.11 as of 2026-05-10.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/8fd9daa3db09ced9700431c5b7ad0e8ba199b575";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forAll = f: lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
      version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
      servers = import ./tools/nix/servers.nix;
    in
    {
      packages = forAll (
        pkgs:
        let
          gabion = import ./tools/nix/gabion.nix { inherit pkgs version; };
          module = name: server: {
            name = "module-${name}";
            value = gabion.module name server;
          };
          built = servers { inherit pkgs; };
        in
        builtins.listToAttrs (map (name: module name built.${name}) (builtins.attrNames built))
        // {
          default = gabion.gabiond;
          inherit (gabion) gabiond;
        }
      );

      devShells = forAll (
        pkgs:
        let
          shells = import ./tools/nix/shells.nix {
            inherit pkgs;
            servers = servers { inherit pkgs; };
          };
        in
        shells
      );

      formatter = forAll (pkgs: pkgs.nixfmt-tree);

      checks = forAll (pkgs: {
        inherit (self.packages.${pkgs.stdenv.hostPlatform.system}) gabiond;
      });
    };
}
