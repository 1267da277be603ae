//! A mistake on the command line or in a file is answered in one line, which names the thing and the way out, with an
//! exit code that is not 0.

mod tree;

use std::{
    fs,
    process::{Command, Output},
};
use tree::{package, shunt};

/// Files that the lines name.
const FILES: [(&str, &str); 12] = [
    ("words.txt", "no JSON\n"),
    ("text.txt", "127.0.0.1 localhost\n"),
    ("case.toml", "case = 1\n"),
    ("key.toml", "max_flow = 1000\n"),
    ("syntax.toml", "ports = [\n"),
    ("defs.toml", "register = 5\n"),
    ("other.json", "{\"a\": 1}\n"),
    ("empty.json", "{}\n"),
    ("empty.toml", "# nothing\n"),
    ("value.toml", "max_flows = \"many\"\n"),
    ("word.toml", "savings = yes\n"),
    ("unquoted.toml", "limits = ignore\n"),
];

/// What is typed, the exit code, the thing, and the way out.
const BAD: [(&str, i32, &str, &str); 269] = [
    ("start", 2, "'start'", "`shunt up` starts an instance"),
    ("upp", 2, "'upp'", "'up'"),
    ("disable laptop", 2, "'disable'", "`shunt off HOST`"),
    ("status --instance A", 2, "`A`", "use 1 to 32 of a-z"),
    ("flows --proto icmp", 2, "'icmp'", "expected one of tcp, udp"),
    ("flows --src 1.2.3", 2, "`1.2.3`", "such as 192.0.2.1"),
    ("flows --src 10.0.0.0/33", 2, "`10.0.0.0/33`", "0 to 32"),
    ("flows --over 1h", 2, "'1h'", "expected 0s to 10s"),
    ("why 192.168.1.2:99999", 2, "`99999`", "1 to 65535"),
    ("why foo", 2, "`foo`", "such as 192.0.2.1"),
    ("why --dport 99999", 2, "99999", "1 to 65535"),
    ("off lan0", 2, "`lan0`", "such as 192.0.2.1"),
    ("off --for 10m", 2, "--for", "name a host"),
    ("watch --for 5x", 2, "'5x'", "such as 500ms, 30s, 10m or 2h"),
    ("export --to x", 2, "'x'", "an address and a port, such as"),
    ("flow add --src 1.2.3.4", 2, "'1.2.3.4'", "an address and a port, such as"),
    ("flow load case.toml", 18, "case.toml: line 1: unknown key `case`", "known are route, flow"),
    ("qos load key.toml", 18, "key.toml: line 1: unknown key `max_flow`", "did you mean `max_flows`?"),
    ("qos load syntax.toml", 18, "syntax.toml: line 1: ports: unclosed array", "expected `]`"),
    ("qos set wan0", 2, "required", "shunt qos set --help"),
    ("model run case.toml", 18, "case.toml: line 1: unknown key `case`", "known are name, seed"),
    ("model run syntax.toml", 18, "syntax.toml: line 1: ports: unclosed array", "expected `]`"),
    ("model run nosuch", 18, "`nosuch`", "`shunt model cases`"),
    ("reg decode --defs defs.toml X 1", 18, "defs.toml: line 1:", "expected a table, got 5"),
    ("reg decode --defs defs.toml", 2, "<REGISTER> <VALUE>", "shunt reg decode --help"),
    ("doctor --recorded other.json", 18, "other.json: not a record", "expected a list in [ ], got an object"),
    ("compare empty.json", 2, "<B>", "shunt compare --help"),
    ("compare empty.json empty.json", 18, "empty.json: not a Shunt result file", "`format` is missing"),
    ("report other.json", 18, "other.json: not a Shunt result file", "`format` is missing"),
    ("bench run case.toml", 18, "case.toml: line 1: unknown key `case`", "known are output"),
    ("bench sweep --from 1G --to 100M", 2, "--from 1.00 Gbit/s --to 100 Mbit/s", "swap them"),
    (
        "gen --streams case.toml --tx a --rx b",
        18,
        "case.toml: line 1: unknown key `case`",
        "known are common",
    ),
    ("line --frame 63", 2, "63", "64"),
    ("trace --seconds 0", 2, "'--seconds <TIME>'", "1ms or more"),
    ("trace --seconds abc", 2, "'abc'", "such as 500ms, 30s, 10m or 2h"),
    ("trace --sample 0", 2, "'0'", "1 to 1000000"),
    ("trace --rows -1", 2, "'-1'", "expected a whole number"),
    ("hosts", 2, "'hosts'", "`shunt usage`"),
    ("config", 2, "'config'", "`shunt reload`"),
    ("logs", 2, "'logs'", "`shunt history --events`"),
    ("dashboard", 2, "'dashboard'", "set `page`"),
    ("savings", 2, "'savings'", "`shunt status`"),
    ("setup", 2, "'setup'", "`shunt probe`"),
    ("upgrade", 2, "'upgrade'", "`shunt restart`"),
    ("speedtest", 2, "'speedtest'", "`shunt quality`"),
    ("status --port r0", 2, "'--port'", "did you mean `shunt status`?"),
    ("up r0", 2, "'r0'", "did you mean `shunt up --port r0`?"),
    ("up --engine fast", 2, "'fast'", "expected one of auto, tc, xdp, external"),
    ("reload --file key.toml", 2, "'--file'", "did you mean `shunt reload --config key.toml`?"),
    ("why icmp 192.168.1.2", 2, "`icmp`", "neither tcp nor udp"),
    ("why 192.168.1.2:", 2, "`192.168.1.2:`", "1 to 65535"),
    ("on lan0", 2, "`lan0`", "`shunt usage` lists them"),
    ("on 192.168.1.2 --for 5m", 2, "--for", "shunt off 192.168.1.2 --for 5m"),
    ("on --for 5m", 2, "--for", "sleep 5m"),
    ("off 192.168.1.2 --for 0s", 2, "'--for <TIME>'", "1s to 365d"),
    ("off 192.168.1.2 --for 999999h", 2, "'999999h'", "1s to 365d"),
    ("off 192.168.1.2 --for ten", 2, "'ten'", "such as 500ms, 30s, 10m or 2h"),
    ("watch --for 0s", 2, "'0s'", "1ms to 365d"),
    ("watch --count 0", 2, "'0'", "1 or more"),
    ("verify --for 0s", 2, "'0s'", "3s to 1h"),
    ("verify --for 2", 2, "'2'", "3s to 1h"),
    ("verify --for 2h", 2, "'2h'", "3s to 1h"),
    ("verify --limit 0", 2, "'0'", "1 to 16"),
    ("quality --for 0s", 2, "'0s'", "1s to 1d"),
    ("quality --for 2d", 2, "'2d'", "1s to 1d"),
    ("quality --limit 0", 2, "'0'", "from 1 on"),
    ("quality --wan lan0/x", 2, "'lan0/x'", "not the name of a port"),
    ("qos load value.toml", 18, "value.toml: line 1", "max_flows"),
    ("model run empty.toml", 18, "empty.toml: the case is empty", "`shunt model cases template`"),
    ("gen --tx a --rx b --gateway nosuch", 2, "'nosuch'", "such as 192.0.2.1"),
    ("load --interval 0", 2, "'0'", "100ms"),
    ("up lan0 wan0", 2, "'lan0'", "did you mean `shunt up --port lan0 --port wan0`?"),
    ("up lab.toml", 2, "'lab.toml'", "`shunt up --config lab.toml`"),
    ("up xdp", 2, "'xdp'", "`shunt up --engine xdp`"),
    ("up dry-run", 2, "'dry-run'", "`shunt up --dry-run`"),
    ("up --interface lan0", 2, "'--interface'", "`shunt up --port lan0`"),
    ("up --port", 2, "'--port <DEV>'", "`shunt up --help`"),
    ("probe lan0", 2, "'lan0'", "`shunt probe --port lan0`"),
    ("status lan0", 2, "'lan0'", "did you mean `shunt status`?"),
    ("reload dry-run", 2, "'dry-run'", "`shunt reload --dry-run`"),
    ("history 2h", 2, "'2h'", "`shunt history --for 2h`"),
    ("history --since 2h", 2, "'--since'", "`shunt history --for 2h`"),
    ("history --since=2h", 2, "'--since'", "`shunt history --for 2h`"),
    ("history 30d", 2, "'30d'", "1m to 1d"),
    ("history events", 2, "'events'", "`shunt history --events`"),
    ("history --for", 2, "'--for <TIME>'", "`shunt history --help`"),
    ("top 5s", 2, "'5s'", "`shunt top --interval 5s`"),
    ("usage 1d", 2, "'1d'", "`shunt usage --for 1d`"),
    ("usage laptop 1d", 2, "'laptop'", "`shunt usage --host laptop --for 1d`"),
    ("usage hour", 2, "'hour'", "`shunt usage --by hour`"),
    ("usage --src laptop", 2, "'--src'", "`shunt usage --host laptop`"),
    ("usage --ip 192.168.1.2", 2, "'--ip'", "`shunt usage --host 192.168.1.2`"),
    ("usage --host a/b", 2, "`a/b`", "`shunt usage` lists"),
    ("quality 192.168.1.2", 2, "'192.168.1.2'", "`shunt quality --host 192.168.1.2`"),
    ("quality lan0", 2, "'lan0'", "did you mean `shunt quality`?"),
    ("quality 1m", 2, "'1m'", "`shunt quality --for 1m`"),
    ("quality off", 2, "'off'", "`shunt quality --off`"),
    ("quality --host nosuch", 2, "`nosuch`", "an address such as"),
    ("off laptop 10m", 2, "`10m`", "`shunt off laptop --for 10m`"),
    ("off laptop for 10m", 2, "`10m`", "`shunt off laptop --for 10m`"),
    ("off --until 10m laptop", 2, "'--until'", "`shunt off --for 10m laptop`"),
    ("off 192.168.1.2 --host 192.168.1.3", 2, "`192.168.1.2`", "keep one of them"),
    ("off tcp tcp", 2, "`tcp`", "before the source"),
    ("on 10m", 2, "shunt: `10m` is not an IP address", "such as 192.0.2.1"),
    ("off laptop 400d", 2, "'400d'", "1s to 365d"),
    ("why 443", 2, "`443`", "`shunt why --dport 443`"),
    ("why 192.168.1.2 443", 2, "`443`", "`shunt why 192.168.1.2 --dport 443`"),
    ("why --sport 0", 2, "'0'", "1 to 65535"),
    ("why laptop:99999", 2, "`99999`", "1 to 65535"),
    ("why 192.168.1.2:80 --sport 81", 2, "`192.168.1.2:80`", "keep one of them"),
    ("why 1:2:3:4:5:6:7:8:443", 2, "`1:2:3:4:5:6:7:8:443`", "[1:2:3:4:5:6:7:8]:443"),
    ("why https://example.com", 2, "`https://example.com`", "such as `example.com`"),
    ("flows 10", 2, "`10`", "`shunt flows --limit 10`"),
    ("flows 192.168.1.2 limit 10", 2, "`10`", "`shunt flows 192.168.1.2 --limit 10`"),
    ("flows --interface lan0", 2, "'--interface'", "`shunt flows --dev lan0`"),
    ("flows --host nosuch", 2, "`nosuch`", "`shunt usage` lists them"),
    ("flows lo", 2, "`lo`", "`shunt flows --dev lo`"),
    ("flows tcp udp", 2, "`udp`", "before the source"),
    ("flows --dst 10.0.0.0/99", 2, "`10.0.0.0/99`", "0 to 32"),
    ("watch 10s", 2, "`10s`", "`shunt watch --for 10s`"),
    ("watch --limit 5", 2, "'--limit'", "`shunt watch --count 5`"),
    ("watch --host nosuch", 2, "`nosuch`", "`shunt usage` lists them"),
    ("verify laptop 1m", 2, "`1m`", "`shunt verify laptop --for 1m`"),
    ("trace --dev lan0", 2, "'--dev'", "`shunt trace lan0`"),
    ("trace --for 0", 2, "'--for <TIME>'", "1ms or more"),
    ("trace --host nosuch", 2, "`nosuch`", "`shunt usage` lists them"),
    ("conntrack tcp", 2, "'tcp'", "`shunt conntrack --proto tcp`"),
    ("conntrack --host nosuch", 2, "`nosuch`", "`shunt usage` lists them"),
    ("conntrack --host laptop --src laptop", 2, "'--host", "shunt conntrack --help"),
    ("line 1G", 2, "'1G'", "`shunt line --speed 1G`"),
    ("bug-report out.txt", 2, "'out.txt'", "`shunt bug-report --output out.txt`"),
    ("bug-report --output case.toml", 18, "case.toml", "exists already: name another one"),
    ("bug-report --output dir", 18, "dir", "this is a directory: name a file in it"),
    ("bug-report --output nodir/x", 18, "nodir/x", "`mkdir -p nodir`"),
    ("bug-report --output /proc/x", 18, "/proc/x", "name a file in another directory"),
    ("export --output dir", 18, "dir", "this is a directory: name a file in it"),
    ("export --output case.toml/x", 18, "case.toml/x", "a part of this path is a file"),
    ("flow load nosuch.toml", 18, "nosuch.toml", "no such file: check the path"),
    ("flow load dir", 18, "dir", "this is a directory: name a file"),
    ("flow load binary.toml", 18, "binary.toml", "not a text file"),
    ("qos load nosuch.toml", 18, "nosuch.toml", "no such file: check the path"),
    ("qos load word.toml", 18, "word.toml: line 1: savings", "use true or false"),
    ("qos load unquoted.toml", 18, "unquoted.toml: line 1: limits", "put it in quotes: \"ignore\""),
    ("model run dir", 18, "dir", "this is a directory: name a file"),
    ("report nosuch", 18, "nosuch", "no such file: check the path"),
    ("compare nosuch.json empty.json", 18, "nosuch.json", "no such file: check the path"),
    ("doctor --recorded nosuch.json", 18, "nosuch.json", "no such file: check the path"),
    ("gen --streams nosuch.toml --tx a --rx b", 18, "nosuch.toml", "no such file: check the path"),
    ("bench run nosuch.toml", 18, "nosuch.toml", "no such file: check the path"),
    ("reg decode --defs nosuch.toml X 1", 18, "nosuch.toml", "no such file: check the path"),
    ("man nosuch", 18, "nosuch", "`mkdir -p nosuch`"),
    ("bench gen --tx a --rx b", 2, "'gen'", "did you mean `shunt gen --tx a --rx b`?"),
    ("bench gen --nosuch", 2, "'gen'", "`shunt gen` is a command of its own"),
    ("qos status", 2, "'status'", "did you mean `shunt status`?"),
    ("model report case.toml", 2, "'report'", "did you mean `shunt report case.toml`?"),
    ("reg link lan0", 2, "'link'", "did you mean `shunt link lan0`?"),
    ("flow flush", 2, "'flush'", "did you mean `shunt flush`?"),
    ("lab bench", 2, "'bench'", "`shunt bench` is a command of its own"),
    ("flow --by host", 2, "'--by'", "did you mean `shunt flows --by host`?"),
    ("flow --host laptop --limit 5", 2, "'--host'", "did you mean `shunt flows --host laptop --limit 5`?"),
    ("flow 192.168.1.2", 2, "'192.168.1.2'", "did you mean `shunt flows 192.168.1.2`?"),
    ("off fe80::1%lan0", 2, "`fe80::1%lan0`", "leave out `%lan0`"),
    ("why [fe80::1%lan0]:443", 2, "`[fe80::1%lan0]:443`", "leave out `%lan0`"),
    ("flows --src fe80::%br-lan/64", 2, "`fe80::%br-lan/64`", "leave out `%br-lan`"),
    ("usage --host fe80::1%lan0", 2, "`fe80::1%lan0`", "leave out `%lan0`"),
    ("quality --host fe80::1%lan0", 2, "`fe80::1%lan0`", "leave out `%lan0`"),
    ("gen --tx a --rx b --gateway fe80::1%a", 2, "`fe80::1%a`", "leave out `%a`"),
    ("flow add --src [fe80::1%2]:5", 2, "`[fe80::1%2]:5`", "leave out `%2`"),
    (
        "export --to [fe80::1%lan0]:2055",
        2,
        "'[fe80::1%lan0]:2055'",
        "the zone of an address is a number here",
    ),
    ("qos set wan0 --rate 50 Mbit", 2, "'Mbit'", "did you mean `shunt qos set wan0 --rate 50Mbit`?"),
    (
        "qos set wan0 --rate 50 Mbit/s --burst 16 k",
        2,
        "'Mbit/s'",
        "`shunt qos set wan0 --rate 50Mbit/s --burst 16k`",
    ),
    ("off 192.0.2.7 --for 10 minutes", 2, "one word", "`--for 10minutes`"),
    ("watch --for 10 s", 2, "one word", "`--for 10s`"),
    ("verify --time 5 min", 2, "one word", "`--time 5min`"),
    ("flush laptop", 2, "'laptop'", "`shunt off laptop`, then `shunt on laptop`"),
    ("line --speed 1000", 2, "--speed 1k", "1000M"),
    ("line --speed 80%", 2, "`80%`", "bit/s: expected a form such as 300M"),
    ("qos set wan0 --rate fast", 2, "`fast`", "bit/s: expected a form such as 300M"),
    ("gen --rate 300 Mbit --time 2 s", 2, "'Mbit'", "`shunt gen --rate 300Mbit --time 2s`"),
    ("gen --rate 50 %", 2, "'%'", "`shunt gen --rate 50%`"),
    ("flows 192.168.1.2 --since 1h", 2, "'--since'", "`shunt usage --for 1h` and `shunt history --for 1h`"),
    ("status --last 1h", 2, "'--last'", "`shunt usage --for 1h` and `shunt history --for 1h`"),
    ("status --sinc 1h", 2, "'--sinc'", "shunt status --help"),
    ("gen --rate 100 --time 1s", 2, "100bit", "100M is 100 Mbit/s"),
    (
        "gen --rate 100 --size 1518 --time 1s --keep kept.json",
        2,
        "one frame of 1518 bytes in 1s",
        "raise the rate",
    ),
    ("bench rxtx --variant a= --udp-rate 100", 2, "--udp-rate 100", "100M is 100 Mbit/s"),
    ("report text.txt", 18, "text.txt: not a Shunt result file", "name another file"),
    ("compare text.txt text.txt", 18, "text.txt: not a Shunt result file", "name another file"),
    ("doctor --recorded words.txt", 18, "words.txt: not a record", "this is not JSON"),
    ("conntrack --dst nosuch", 2, "`nosuch` is not a host", "`shunt usage` lists them"),
    ("why nosuch", 2, "`nosuch` is neither tcp nor udp, nor a host", "`shunt usage` lists them"),
    ("off all", 2, "`all`", "`shunt off 0.0.0.0/0`"),
    ("on all", 2, "`all`", "without arguments"),
    ("off lo", 2, "`lo` is a network device", "`ports` in /etc/shunt/shunt.toml"),
    ("on lo", 2, "`lo` is a network device", "`shunt off` lists its rules"),
    ("off 02:00:00:00:00:99", 2, "`02:00:00:00:00:99` is not the MAC of", "`shunt usage` lists them"),
    ("off --port 443", 2, "'--port'", "`shunt off --dport 443`"),
    ("off laptop --for -5m", 2, "'-5m' for '--for <TIME>'", "1s to 365d"),
    ("off laptop --time", 2, "'--time <TIME>'", "`shunt off --help`"),
    ("history --for -1h", 2, "'-1h' for '--for <TIME>'", "1m to 1d"),
    ("history --day", 2, "'--day'", "`shunt history --for 1d`"),
    ("history --month", 2, "'--month'", "did you mean `--for <TIME>`?"),
    ("history --until 10:00", 2, "'--until'", "did you mean `--for <TIME>`?"),
    ("usage --month", 2, "'--month'", "`shunt usage --for 30d`"),
    ("usage week", 2, "'week'", "`shunt usage --for 7d`"),
    ("usage --since 2026-11-01", 2, "'--since'", "did you mean `--for <TIME>`?"),
    ("usage --for 1y", 2, "--for: 365d 6h", "1m to 31d"),
    ("usage --limit -1", 2, "'-1' for '--limit <N>'", "from 1 on"),
    ("trace --for abc", 2, "'abc' for '--for <TIME>'", "such as 500ms, 30s, 10m or 2h"),
    ("trace --for -1", 2, "'-1' for '--for <TIME>'", "1ms or more"),
    ("trace --host laptop --host tv", 2, "'--host", "cannot be used multiple times"),
    ("watch --time 5x", 2, "'5x' for '--time <TIME>'", "1ms to 365d"),
    ("conntrack -L", 2, "'-L'", "did you mean `shunt conntrack`?"),
    ("conntrack -L -p tcp", 2, "'-L'", "did you mean `shunt conntrack -p tcp`?"),
    ("conntrack -D -s 192.0.2.1", 2, "'-D'", "`conntrack -D -s 192.0.2.1` of Linux"),
    ("conntrack -E", 2, "'-E'", "`shunt watch`"),
    ("conntrack list", 2, "'list'", "did you mean `shunt conntrack`?"),
    ("conntrack -f ipv4", 2, "'-f'", "shunt conntrack --help"),
    ("conntrack --state ESTABLISHED", 2, "'--state'", "`shunt flows` has this option"),
    ("restart --port lan0", 2, "'--port'", "`shunt down`, then `shunt up --port lan0`"),
    ("restart --engine=tc", 2, "'--engine'", "`shunt up --engine=tc`"),
    ("reload --engine xdp", 2, "'--engine'", "`shunt up --engine xdp`"),
    ("restart now", 2, "'now'", "did you mean `shunt restart`?"),
    ("down --force", 2, "'--force'", "did you mean `shunt down`?"),
    ("down -f", 2, "'-f'", "did you mean `shunt down`?"),
    ("up --daemon", 2, "'--daemon'", "did you mean `shunt up`?"),
    ("up --xdp", 2, "'--xdp'", "`shunt up --engine xdp`"),
    ("up -p lan0", 2, "'-p'", "`shunt up --port lan0`"),
    ("up --core -1", 2, "'-1' for '--core <NUMBER>'", "expected 0 to"),
    ("flows -i lan0", 2, "'-i'", "`shunt flows --dev lan0`"),
    ("flows -i", 2, "'-i'", "did you mean `--dev <DEV>`?"),
    ("top -i lan0", 2, "'-i'", "did you mean `shunt top`?"),
    ("top -d 1", 2, "'-d'", "`shunt top --interval 1`"),
    ("top -n", 2, "'-n'", "did you mean `--limit <N>`?"),
    ("flows --limit -5", 2, "'-5' for '--limit <N>'", "from 1 on"),
    ("flows tcp:443", 2, "`tcp:443`", "`tcp --dport 443`"),
    ("flows --udp", 2, "'--udp'", "`shunt flows --proto udp`"),
    ("flows udp port 53", 2, "`53`", "`shunt flows udp --dport 53`"),
    ("flows src 192.0.2.1 dport 443", 2, "'443'", "`shunt flows --src 192.0.2.1 --dport 443`"),
    ("why tcp laptop 192.0.2.1 443", 2, "'443'", "`shunt why tcp laptop 192.0.2.1 --dport 443`"),
    ("why --port 443", 2, "'--port'", "`shunt why --dport 443`"),
    ("status -s", 2, "'-s'", "did you mean `shunt status`?"),
    ("link lan0 mtu 1400", 2, "'mtu'", "`ip link set lan0 mtu 1400`"),
    ("link set dev lan0 up", 2, "'dev'", "`ip link set lan0 up`"),
    ("link show lan0", 2, "'lan0'", "`shunt link lan0`"),
    ("link lan0 speed 100 duplex full", 2, "'speed'", "`shunt link lan0 --mode speed=100,duplex=full`"),
    ("check lan0 up", 2, "'up'", "`ip link set lan0 up`"),
    (
        "qos set wan0 cake bandwidth 50mbit",
        2,
        "'cake'",
        "`tc qdisc replace dev wan0 root cake bandwidth 50mbit`",
    ),
    ("qos set wan0 --rate -5", 2, "'-5' for '--rate <RATE>'", "such as 300M"),
    ("qos clear wan0", 2, "'clear'", "`shunt qos del wan0`"),
    ("flow remove --all", 2, "'remove'", "`shunt flow del --all`"),
    ("flow add --in lan0", 2, "'--in'", "did you mean `--in-port <PORT>`?"),
    ("reg show", 2, "'show'", "`shunt reg list`"),
    ("model list", 2, "'list'", "`shunt model cases`"),
    ("model show imx6", 2, "'show'", "`shunt model cases imx6`"),
    ("gen lan0 wan0", 2, "'lan0'", "`shunt gen --tx lan0 --rx wan0`"),
    ("gen --tx a --rx b --vlan 4096", 2, "'4096'", "0 to 4095"),
    ("gen --rate 1000G", 2, "1000Gbit is 1.953 Gpps", "at most 1 Gpps"),
    ("bench sweep --from 1 --to 2", 2, "1bit is less than one frame", "raise the rate"),
    ("bench sweep --step 0", 2, "'0' for '--step <RATE>'", "such as 300M"),
    ("completions --shell bash", 2, "'--shell'", "`shunt completions bash`"),
    ("doctor lo --record case.toml", 18, "case.toml", "exists already and is not a record"),
    ("man status", 18, "status", "`shunt status --help`"),
    ("nosuch", 2, "'nosuch'", "shunt --help"),
    ("STATUS", 2, "'STATUS'", "did you mean `shunt status`?"),
    ("ip link", 2, "'ip'", "`shunt link DEV`"),
    ("nft list ruleset", 2, "'nft'", "`nft list ruleset`"),
    ("tcpdump -i lan0", 2, "'tcpdump'", "`shunt trace`"),
    ("iperf3 -s", 2, "'iperf3'", "`shunt gen`"),
];

#[test]
fn each_mistake_is_one_line_with_the_thing_and_the_way_out() {
    let directory = tempfile::TempDir::new().unwrap();
    for (name, text) in FILES {
        fs::write(directory.path().join(name), text).unwrap();
    }
    fs::write(directory.path().join("binary.toml"), [0xff, 0xfe]).unwrap();
    fs::create_dir(directory.path().join("dir")).unwrap();
    let run = |line: &str| -> Output {
        let mut command = Command::new(shunt());
        command.args(line.split_whitespace()).current_dir(directory.path());
        command.env("SHUNT_RUNTIME_DIR", directory.path()).output().unwrap()
    };
    let mut wrong = Vec::new();
    for (line, code, thing, way_out) in BAD {
        let Output { status, stdout, stderr } = run(line);
        let said = String::from_utf8(stderr).unwrap();
        let is_one_line = said.lines().count() == 1 && said.starts_with("shunt: ") && stdout.is_empty();
        if status.code() != Some(code) || !is_one_line || !said.contains(thing) || !said.contains(way_out) {
            wrong.push(format!("shunt {line}: {status}: {said}"));
        }
        for foreign in [
            "expected struct",
            "invalid type",
            "a sequence",
            "expected a map",
            "\\n",
            "socket address syntax",
            "os error",
            "No such file or directory",
        ] {
            assert!(!said.contains(foreign), "shunt {line}: {said}");
        }
        let json = String::from_utf8(run(&format!("{line} --json")).stderr).unwrap();
        let body: Result<serde_json::Value, _> = serde_json::from_str(&json);
        assert!(body.is_ok_and(|body| body["error"]["code"].is_string()), "shunt {line} --json: {json}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!directory.path().join("kept.json").exists(), "a measurement that was refused keeps nothing");
}

#[test]
fn an_empty_word_is_answered_with_the_words_before_it() {
    for words in [&["link"][..], &["up", "--port"], &["usage", "--host"], &["off"], &[]] {
        let output = Command::new(shunt()).args(words).args(["", "--json"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let before = ["shunt"].into_iter().chain(words.iter().copied()).collect::<Vec<_>>().join(" ");
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(&format!("the word behind `{before}` is empty")), "{said}");
    }
}

#[test]
fn files_with_nothing_in_common_are_not_compared() {
    let file = |name: &str| package().join("../../lab/results").join(name);
    let [a, b] = ["auto-veth-6.18.json", "scale-veth-6.18.json"].map(file);
    let output = Command::new(shunt()).arg("compare").args([a, b]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(
        said.contains("no reading in common") && said.contains("compare files of the same measurement"),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn help_and_the_version_are_no_mistakes() {
    for line in ["--help", "off -h", "--version"] {
        let output = Command::new(shunt()).args(line.split_whitespace()).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty(), "{line}");
    }
}
