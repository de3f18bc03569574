// Linked into static programs: names of hosts, users and groups come from files and DNS alone.
// /etc/nsswitch.conf may name further sources (systemd, mDNS, LDAP). Each is a shared library for the
// system's own C library, and a static program that loads one is killed by a segmentation fault.
#include <nss.h>

__attribute__((constructor)) static void names(void) {
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
    __nss_configure_lookup("group", "files");
}
