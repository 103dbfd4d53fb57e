package redisqueue

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"

	"github.com/compensator-go/compensator/processlog"
)

// redisKeys spells every name this library uses in Redis. The format's version is part of each, so that two
// versions of the library never misread each other.
//
// All keys of one hash tag live on one node of a Redis Cluster. What follows the closing brace is free text:
// a business type may hold any character, because a due key is read from its right end.
type redisKeys struct {
	prefix string
	tags   uint32 // hash tags in use: 1 on a single server, clusterTags on a cluster
}

// clusterTags is how many hash tags spread the types of one prefix over a cluster. Changing it moves keys:
// entries left under the old ones are enqueued again from the database.
const clusterTags = 16

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,64}$`)

// PrefixProblem is what is wrong with a prefix, if anything is.
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

// tagOf is the number of the hash tag a business type's keys carry.
func (k redisKeys) tagOf(businessType string) uint32 {
	return crc32.ChecksumIEEE([]byte(businessType)) % k.tags
}

func (k redisKeys) tag(n uint32) string {
	return "{" + k.prefix + ":v1:" + strconv.FormatUint(uint64(n), 10) + "}"
}

// due is the zset of a type's due and leased entries. The 0 is its partition; there is one so far.
func (k redisKeys) due(businessType string) string {
	return k.tag(k.tagOf(businessType)) + ":" + businessType + ":0:due"
}

// wholeMark is the member of a due zset that says that no enqueued entry of it has been lost.
func wholeMark(dueKey string) string { return "whole " + dueKey }

// rebuildMark is the member of a due zset that says who rebuilds it.
func rebuildMark(who, dueKey string) string { return "rebuild " + who + " " + dueKey }

// rebuilder names in a mark the process that rebuilds with a token.
func rebuilder(token processlog.Token) string { return hex.EncodeToString(token[:]) }

// epoch holds a random value that is gone once Redis lost the keys of a tag.
func (k redisKeys) epoch(tag uint32) string { return k.tag(tag) + ":epoch" }

// owner holds the fingerprint of the one database that may use the keys of a tag.
func (k redisKeys) owner(tag uint32) string { return k.tag(tag) + ":owner" }

// lead holds the instance that reconciles.
func (k redisKeys) lead() string { return k.tag(0) + ":lead" }

// wake is the channel that carries business types with a new earliest due moment.
func (k redisKeys) wake() string { return k.prefix + ":v1:wake" }
