package redisqueue

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

// redisKeys builds the names of all keys and channels in Redis. Each name includes the version of the format, so that
// versions of the library never misread each other's keys.
//
// All keys of one hash tag are on one node of a Redis Cluster. A due key is "{prefix:v1:tag}:type:0:due". The type may
// contain any character, because a due key is parsed from its right end.
type redisKeys struct {
	prefix string
	tags   uint32 // number of hash tags: 1 on a single server, clusterTags on a cluster
}

// clusterTags is the number of hash tags that spread the types of one prefix over a cluster. If a later version changes
// this number, keys move to other nodes. The entries of the old keys are then enqueued again from the database.
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

// tagOf returns the number of the hash tag of a business type's keys.
func (k redisKeys) tagOf(businessType string) uint32 {
	return crc32.ChecksumIEEE([]byte(businessType)) % k.tags
}

func (k redisKeys) tag(n uint32) string {
	return "{" + k.prefix + ":v1:" + strconv.FormatUint(uint64(n), 10) + "}"
}

// dueKey returns the key of the zset with a type's due and leased entries. The 0 in it is the partition. So far there is
// only one partition.
func (k redisKeys) dueKey(businessType string) string {
	return k.tag(k.tagOf(businessType)) + ":" + businessType + ":0:due"
}

// wholeMark returns the member of a due zset which says that no enqueued entry has been lost.
func wholeMark(dueKey string) string { return "whole " + dueKey }

// rebuildMark returns the member of a due zset that names the process which rebuilds the type.
func rebuildMark(token, dueKey string) string { return "rebuild " + token + " " + dueKey }

// rebuilder returns the text that stands for a process in a rebuildMark. token is the token of this process.
func rebuilder(token processlog.Token) string { return hex.EncodeToString(token[:]) }

// owner returns the key that holds the fingerprint of a database. Only that database may use the keys of the tag.
func (k redisKeys) owner(tag uint32) string { return k.tag(tag) + ":owner" }

// lead returns the key that holds the name of the instance that reconciles.
func (k redisKeys) lead() string { return k.tag(0) + ":lead" }

// wake returns the channel for business types whose earliest due time has become earlier.
func (k redisKeys) wake() string { return k.prefix + ":v1:wake" }
