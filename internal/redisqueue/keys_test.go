package redisqueue

import (
	"embed"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F48
func TestRedisKeysAreSpeltAsStored(t *testing.T) {
	single, err := newKeys("shop", 1)
	require.NoError(t, err)
	assert.Equal(t, "{shop:v1:0}:sync_user:0:due", single.dueKey("sync_user"))
	assert.Equal(t, "{shop:v1:0}:owner", single.owner(0))
	assert.Equal(t, "{shop:v1:0}:lead", single.lead())
	assert.Equal(t, "shop:v1:wake", single.wake())
	assert.Equal(t, "whole {shop:v1:0}:sync_user:0:due", wholeMark(single.dueKey("sync_user")))
	assert.Equal(t, "rebuild 0107"+strings.Repeat("0", 28)+" k", rebuildMark(rebuilder(processlog.Token{1, 7}), "k"))

	cluster, err := newKeys("shop", clusterTags)
	require.NoError(t, err)
	assert.Equal(t, "{shop:v1:6}:sync_user:0:due", cluster.dueKey("sync_user"))
	assert.Equal(t, "{shop:v1:6}:订单}{:0:due", cluster.dueKey("订单}{"))
	assert.Equal(t, "{shop:v1:15}:owner", cluster.owner(15))
}

func TestRedisKeysSpreadTypesOverAllTags(t *testing.T) {
	k, err := newKeys("shop", clusterTags)
	require.NoError(t, err)
	tags := make(map[uint32]bool)
	for _, letter := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" {
		tags[k.tagOf("type "+string(letter))] = true
	}
	assert.Len(t, tags, clusterTags)
}

// Failure: F48
func TestRedisKeysOfDifferentMeaningNeverCoincide(t *testing.T) {
	seen := make(map[string]string)
	for _, prefix := range []string{"a", "a:v1:0", "a:v1", "v1"} {
		k, err := newKeys(prefix, 1)
		require.NoError(t, err)
		meant := map[string]string{"owner": k.owner(0), "lead": k.lead(), "wake": k.wake()}
		for _, businessType := range []string{"x", "x:0", "x:0:due", "epoch", "lead", "owner", "}:epoch", "0", "}", "{x}", "v1:wake"} {
			meant["due "+businessType] = k.dueKey(businessType)
		}
		for meaning, key := range meant {
			assert.Empty(t, seen[key], "%s of %s has the same name %s", meaning, prefix, key)
			seen[key] = meaning + " of " + prefix
		}
	}
}

// Failure: F48
func TestRedisPrefixThatMovesKeysIsRefused(t *testing.T) {
	for _, prefix := range []string{"", "a}b{", "{a", "a b", "a\n", "é", strings.Repeat("x", 65)} {
		_, err := newKeys(prefix, 1)
		var refused *processlog.FieldError
		if assert.ErrorAs(t, err, &refused, "prefix %q", prefix) {
			assert.Equal(t, "Redis prefix", refused.Field)
		}
	}
	for _, prefix := range []string{"a", "A_b.c:d-9", strings.Repeat("x", 64)} {
		_, err := newKeys(prefix, 1)
		assert.NoError(t, err, "prefix %q", prefix)
	}
}

//go:embed lua
var luaFiles embed.FS

// A cluster routes a script by its keys, so a script may use only the keys that it was given. Some servers find these
// keys in the script's text, so each command must name its key as KEYS[1].
// Failure: F48
func TestScriptsTouchOnlyKeysTheyWereGiven(t *testing.T) {
	files, err := luaFiles.ReadDir("lua")
	require.NoError(t, err)
	require.Len(t, files, 9)
	for _, file := range files {
		source, err := luaFiles.ReadFile("lua/" + file.Name())
		require.NoError(t, err)
		assert.Empty(t, scriptFaults(string(source)), file.Name())
		assert.NotContains(t, string(source), "KEYS[2]", "%s: each has one key", file.Name())
	}
}

// Braces in a prefix or a type must not change the hash tag.
func FuzzRedisKeys(f *testing.F) {
	f.Add("compensator", "a", "b", uint32(1))
	f.Add("p", "a:0:due", "a", uint32(16))
	f.Add("p:v1:0", "{x}", "}", uint32(16))
	f.Add("p", "epoch", "owner", uint32(16))
	f.Add("p", ":0:due", "", uint32(3))
	f.Fuzz(func(t *testing.T, prefix, one, other string, tags uint32) {
		k, err := newKeys(prefix, tags%64+1)
		if err != nil {
			require.ErrorAs(t, err, new(*processlog.FieldError))
			return
		}
		require.Equal(t, one == other, k.dueKey(one) == k.dueKey(other))
		for _, key := range []string{k.dueKey(one), k.owner(k.tagOf(one))} {
			_, inner, found := strings.Cut(key, "{")
			require.True(t, found)
			inner, _, found = strings.Cut(inner, "}")
			require.True(t, found)
			require.Equal(t, k.tag(k.tagOf(one)), "{"+inner+"}", "a script's keys live together")
		}
		for _, ours := range []string{k.owner(k.tagOf(one)), k.lead(), k.wake()} {
			require.NotEqual(t, ours, k.dueKey(one))
		}
	})
}

// A server may hide its version.
func FuzzRedisVersion(f *testing.F) {
	for _, version := range []string{"", "7.0.15", "4.0.14", "5", "5.", "99999999999999999999.1.1", "-1.0.0", "+8.9.9"} {
		f.Add(version)
	}
	f.Fuzz(func(t *testing.T, version string) {
		for _, info := range []string{version, "# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone"} {
			if err := checkRedisVersion(info); err != nil {
				var refused *processlog.FieldError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, "Redis", refused.Field)
			}
		}
	})
}

// The texts come from Redis 6.0.16 and 7.0.15.
func TestRefusalOfACommandInsideAScriptIsTold(t *testing.T) {
	for _, answer := range []string{
		"ERR Error running script (call to f_bd6f3018b28bbdb36260f19d3c44afed740db987): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
		"ERR The user executing the script can't run this command or subcommand script: bd6f3018b28bbdb36260f19d3c44afed740db987, on @user_script:1.",
		"NOPERM this user has no permissions to run the 'evalsha' command",
	} {
		assert.ErrorContains(t, markRefusal(errors.New(answer)), "the client is refused", answer)
	}
	away := errors.New("ERR Error running script (call to f_4e9143e7013c317c46f10bf41ce7267638882aa6): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.")
	assert.Equal(t, away, markRefusal(away))
	assert.Equal(t, "READONLY You can't write against a read only replica.", answerOf(away))
}
