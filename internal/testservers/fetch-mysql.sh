#!/usr/bin/env bash
# Unpacks the MySQL of Debian unstable into a directory. There it also writes the script mysqld, which runs this MySQL
# with its own loader and libraries. It installs nothing and changes nothing outside the directory.
#
#   fetch-mysql.sh [directory]      default: build/mysql97 of this repository
#
# The packages come from the mirror in this machine's apt sources. The version is the current one of Debian unstable.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$(realpath -m "${1:-$repository/build/mysql97}")
part=$target.part

if [ -x "$target/mysqld" ] && "$target/mysqld" --no-defaults --version; then
	exit 0
fi

# mirror prints the address from which this machine gets its own release of Debian.
mirror() {
	local codename
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk -v codename="$codename" '$1 == codename || $1 == "stable" { print $2; exit }'
}

# private_apt writes an apt configuration below $1. Its only source is Debian unstable on mirror $2. apt keeps its files below $1.
private_apt() {
	mkdir -p "$1"/etc/{apt.conf.d,sources.list.d,preferences.d,trusted.gpg.d} "$1"/state/lists/partial "$1"/cache/archives/partial
	: >"$1/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $2 sid main" >"$1/etc/sources.list"
	cat >"$1/apt.conf" <<-END
		Dir::State "$1/state";
		Dir::State::status "$1/status";
		Dir::Cache "$1/cache";
		Dir::Etc "$1/etc";
		APT::Sandbox::User "";
		Debug::NoLocking "true";
		Acquire::Check-Valid-Until "false";
		Acquire::Languages "none";
	END
}

fetch() {
	APT_CONFIG=$part/apt/apt.conf apt-get -qq update
	APT_CONFIG=$part/apt/apt.conf apt-get -qq install -y --no-install-recommends --download-only mysql-server-core
}

unpack() {
	local package
	for package in "$part"/apt/cache/archives/*.deb; do
		case ${package##*/} in
		perl* | libperl*) ;; # Only helper scripts need Perl. The server does not.
		*) dpkg-deb -x "$package" "$part" ;;
		esac
	done
	rm -rf "$part/apt"
}

# The wrapper puts its options last, because --no-defaults must be the first option, and a caller may pass it.
write_wrapper() {
	cat >"$part/mysqld" <<-'END'
		#!/bin/sh
		root=$(cd "$(dirname "$0")" && pwd)
		for loader in "$root"/usr/lib64/ld-linux-*.so.* "$root"/usr/lib/ld-linux-*.so.*; do
			[ -e "$loader" ] && break
		done
		for libraries in "$root"/usr/lib/*-linux-gnu; do :; done
		exec "$loader" --library-path "$libraries" "$root/usr/sbin/mysqld" "$@" \
			--basedir="$root/usr" --plugin-dir="$root/usr/lib/mysql/plugin" \
			--lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets"
	END
	chmod +x "$part/mysqld"
}

uri=$(mirror)
if [ -z "$uri" ]; then
	echo "fetch-mysql.sh: this machine's apt sources name no Debian mirror" >&2
	exit 1
fi
rm -rf "$part"
private_apt "$part/apt" "$uri"
fetch
unpack
write_wrapper
rm -rf "$target"
mv "$part" "$target"
"$target/mysqld" --no-defaults --version
