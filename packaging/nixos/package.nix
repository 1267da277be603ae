# Shunt for NixOS and Nix: pkgs.callPackage ./package.nix { }
{
  lib,
  rustPlatform,
  llvmPackages,
  pkg-config,
  libbpf,
  linuxHeaders,
  elfutils,
  zlib,
  installShellFiles,
}:
rustPlatform.buildRustPackage {
  pname = "shunt";
  version = "0.1.0";
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "shunt" "--package" "shuntd" ];
  # The tests make network namespaces and need root.
  doCheck = false;

  nativeBuildInputs = [ llvmPackages.clang-unwrapped llvmPackages.llvm pkg-config installShellFiles ];
  buildInputs = [ libbpf elfutils zlib ];
  # clang for the BPF target does not search Nix's directories by itself.
  CPATH = lib.makeSearchPathOutput "dev" "include" [ libbpf linuxHeaders ];
  hardeningDisable = [ "all" ];

  postInstall = ''
    mkdir man && $out/bin/shunt man man
    installManPage man/*
    for shell in bash zsh fish; do
      $out/bin/shunt completions $shell > shunt.$shell
    done
    installShellCompletion --cmd shunt --bash shunt.bash --zsh shunt.zsh --fish shunt.fish
  '';

  meta = {
    description = "Fast path for Linux routers";
    license = with lib.licenses; [ mit asl20 ];
    platforms = lib.platforms.linux;
    mainProgram = "shunt";
  };
}
