//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package embedded

import "os"

// tryLock does nothing here: no redis-server runs on these systems, so two
// daemons of one directory have no data in common that they could spoil.
func tryLock(*os.File) error { return nil }

func ownedByUs(os.FileInfo) bool { return true }

func ours(os.FileInfo) bool { return true }

func links(os.FileInfo) uint64 { return 1 }

const noFollow = 0

func isLink(error) bool { return false }
