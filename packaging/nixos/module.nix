# A NixOS module: imports = [ shunt/packaging/nixos/module.nix ]; services.shunt.enable = true;
{ config, lib, pkgs, ... }:
let
  cfg = config.services.shunt;
  toml = pkgs.formats.toml { };
in
{
  options.services.shunt = {
    enable = lib.mkEnableOption "Shunt, a fast path for established connections";
    package = lib.mkOption {
      type = lib.types.package;
      default = pkgs.callPackage ./package.nix { };
      description = "The package with shunt and shuntd.";
    };
    ports = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "lan0" "wan0" ];
      description = "The ports; none for the devices that forward traffic.";
    };
    settings = lib.mkOption {
      type = toml.type;
      default = { };
      example = { max_flows = 65536; };
      description = "Keys of shunt.toml(5).";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];
    environment.etc."shunt/shunt.toml".source = toml.generate "shunt.toml" cfg.settings;
    systemd.services.shuntd = {
      description = "Fast path for established connections";
      documentation = [ "man:shuntd(8)" "man:shunt.toml(5)" ];
      wantedBy = [ "multi-user.target" ];
      after = [ "network.target" "systemd-sysctl.service" "nftables.service" ];
      startLimitIntervalSec = 0;
      restartTriggers = [ config.environment.etc."shunt/shunt.toml".source ];
      # As in packaging/shuntd@.service, which has the reasons.
      serviceConfig = {
        Type = "notify";
        TimeoutStartSec = "3min";
        WatchdogSec = 15;
        FileDescriptorStoreMax = 4096;
        Environment = "FDSTORE=4096";
        LimitNOFILE = "8192:524288";
        ExecStart = lib.escapeShellArgs (
          [ "${cfg.package}/bin/shuntd" ] ++ lib.concatMap (port: [ "--port" port ]) cfg.ports
        );
        ExecReload = "${cfg.package}/bin/shunt reload";
        Restart = "on-failure";
        RestartSec = 1;
        RestartPreventExitStatus = "2 18 19 24";
        RuntimeDirectory = "shunt";
        RuntimeDirectoryPreserve = true;
        StateDirectory = "shunt";
        CapabilityBoundingSet = "CAP_SYS_ADMIN CAP_NET_ADMIN CAP_SYS_NICE CAP_CHOWN CAP_NET_RAW CAP_IPC_LOCK";
        NoNewPrivileges = true;
        SystemCallFilter = "@system-service bpf perf_event_open seccomp";
        SystemCallErrorNumber = "EPERM";
        SystemCallArchitectures = "native";
        RestrictAddressFamilies = "AF_UNIX AF_NETLINK AF_INET AF_INET6 AF_XDP";
        MemoryMax = "2G";
        TasksMax = 64;
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        RestrictNamespaces = true;
        RestrictSUIDSGID = true;
        UMask = "0077";
        ProtectSystem = "strict";
        ProtectHome = true;
        ProtectClock = true;
        ProtectControlGroups = true;
        ProtectHostname = true;
        ProtectKernelLogs = true;
        ProtectKernelModules = true;
        ProtectKernelTunables = true;
        PrivateTmp = true;
        DevicePolicy = "closed";
        KeyringMode = "private";
      };
    };
  };
}
