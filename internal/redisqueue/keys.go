package redisqueue

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

// redisKeys builds the names of all keys and channels in Redis. They include the version of the format. All keys of one
// hash tag are on one node of a cluster.
//
// A due key is "{prefix:v1:tag}:type:0:due". It is parsed from its right end, because the type may contain any character.
type redisKeys struct {
	prefix string
	tags   uint32 // number of hash tags: 1 on a single server, clusterTags on a cluster
}

// clusterTags spreads the types of one prefix over a cluster. If it changes, entries are enqueued again from the database.
const clusterTags = 16

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// PrefixProblem returns what is wrong with a prefix, or "".
func PrefixProblem(prefix string) string {
	if validPrefix.MatchString(prefix) {
		return ""
	}
	return fmt.Sprintf("%q: want 1 to 64 of A-Z a-z 0-9 _ . : -", prefix)
}

func newKeys(prefix string, tags uint32) (redisKeys, error) {
	if reason := PrefixProblem(prefix); reason != "" {
		return redisKeys{}, &processlog.FieldError{Field: "Redis prefix", Reason: reason}
	}
	return redisKeys{prefix, tags}, nil
}

func (k redisKeys) tagOf(businessType string) uint32 {
	return crc32.ChecksumIEEE([]byte(businessType)) % k.tags
}

func (k redisKeys) tag(n uint32) string {
	return "{" + k.prefix + ":v1:" + strconv.FormatUint(uint64(n), 10) + "}"
}

// dueKey returns the key of the zset with a type's due and leased entries. The 0 is the only partition.
func (k redisKeys) dueKey(businessType string) string {
	return k.tag(k.tagOf(businessType)) + ":" + businessType + ":0:due"
}

// wholeMark returns the member of a type's zset which says that no enqueued entry has been lost.
func wholeMark(dueKey string) string { return "whole " + dueKey }

// rebuildMark returns the member of a type's zset which names the process that rebuilds the type.
func rebuildMark(token, dueKey string) string { return "rebuild " + token + " " + dueKey }

func rebuilder(token processlog.Token) string { return hex.EncodeToString(token[:]) }

// owner returns a key whose value is the fingerprint of a database. Only this database may use the keys with the given
// hash tag.
func (k redisKeys) owner(tag uint32) string { return k.tag(tag) + ":owner" }

func (k redisKeys) lead() string { return k.tag(0) + ":lead" }

func (k redisKeys) wake() string { return k.prefix + ":v1:wake" }
