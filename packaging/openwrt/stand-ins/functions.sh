# Stands in for OpenWrt's /lib/functions.sh in check.sh. The lines of a file of UCI are commands of the shell: config,
# option and list.
# shellcheck shell=dash

config_cb() { :; }
option_cb() { :; }
list_cb() { :; }

config() {
	CONFIG_SECTION=$2
	CONFIG_SECTIONS="$CONFIG_SECTIONS $1:$2"
	config_cb "$1" "$2"
}
option() {
	eval "CONFIG_${CONFIG_SECTION}_$1=\$2"
	option_cb "$1" "$2"
}
list() { list_cb "$1" "$2"; }

config_load() {
	CONFIG_SECTIONS=
	for variable in $(set | sed -n 's/^\(CONFIG_[a-z][A-Za-z_]*\)=.*/\1/p'); do unset "$variable"; done
	# shellcheck source=/dev/null
	. "/etc/config/$1"
}
config_get() { eval "$1=\${CONFIG_${2}_$3:-\${4:-}}"; }
config_get_bool() {
	config_get "$@"
	eval "case \$$1 in 1|on|true|yes|enabled) $1=1 ;; 0|off|false|no|disabled) $1=0 ;; *) $1=\${4:-0} ;; esac"
}
config_foreach() {
	for section in $CONFIG_SECTIONS; do
		[ "${section%%:*}" != "$2" ] || "$1" "${section#*:}"
	done
}
