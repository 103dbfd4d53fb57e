package redisqueue

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keyAt maps commands of the scripts to the index of the argument that is the key (0: none).
var keyAt = map[string]int{
	"TIME":   0,
	"DEL":    1,
	"EXISTS": 1,
	"GET":    1, "SET": 1, "PEXPIRE": 1, "INCRBY": 1,
	"HGET": 1, "HMGET": 1, "HSET": 1, "HDEL": 1, "HINCRBY": 1,
	"SADD": 1, "SISMEMBER": 1, "RPUSH": 1,
	"ZADD": 1, "ZCOUNT": 1, "ZINCRBY": 1, "ZRANGE": 1, "ZRANGEBYSCORE": 1, "ZREM": 1, "ZREMRANGEBYSCORE": 1, "ZSCORE": 1,
	"XADD": 1, "XLEN": 1, "XPENDING": 1, "XTRIM": 1,
	"XGROUP": 2, "XINFO": 2,
}

var (
	luaComment = regexp.MustCompile(`--[^\n]*`)
	luaCall    = regexp.MustCompile(`redis\.p?call\s*\(`)
	luaCommand = regexp.MustCompile(`^'([A-Z]+)'$`)
	luaKey     = regexp.MustCompile(`^KEYS\[[1-9]\]$`)
)

// scriptFaults returns what the proxy of Alibaba Cloud for Redis would refuse, according to its documentation:
// KEYS[number] only as the key of a command, no unpack, no nested commands.
func scriptFaults(source string) (faults []string) {
	source = luaComment.ReplaceAllString(source, "")
	rest := source
	for _, at := range luaCall.FindAllStringIndex(source, -1) {
		args := luaArguments(source[at[1]:])
		if slices.ContainsFunc(args, luaCall.MatchString) {
			faults = append(faults, fmt.Sprintf("%s: a command is an argument of another", strings.Join(args, ", ")))
		}
		command := luaCommand.FindStringSubmatch(args[0])
		if command == nil {
			faults = append(faults, fmt.Sprintf("%s: the command is no literal", args[0]))
			continue
		}
		position, known := keyAt[command[1]]
		switch {
		case !known:
			faults = append(faults, fmt.Sprintf("%s: say in keyAt where its key stands", command[1]))
		case position == 0:
		case position >= len(args) || !luaKey.MatchString(args[position]):
			faults = append(faults, fmt.Sprintf("%s: its key is not KEYS and a number", strings.Join(args, ", ")))
		default:
			if command[1] == "DEL" || command[1] == "EXISTS" {
				if len(args) != 2 {
					faults = append(faults, fmt.Sprintf("%s: more than one key", strings.Join(args, ", ")))
				}
			}
			rest = strings.Replace(rest, args[position], "", 1)
		}
	}
	if len(faults) == 0 && strings.Contains(rest, "KEYS") {
		faults = append(faults, "KEYS stands in an expression")
	}
	if strings.Contains(source, "unpack") {
		faults = append(faults, "it uses unpack")
	}
	if !strings.Contains(source, "KEYS[") {
		faults = append(faults, "there is no key")
	}
	return faults
}

// The text begins after the opening parenthesis.
func luaArguments(text string) (args []string) {
	depth, from, quoted := 0, 0, false
	for i, c := range text {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == ',' && depth == 0, c == ')' && depth == 0:
			args = append(args, strings.TrimSpace(text[from:i]))
			from = i + 1
			if c == ')' {
				return args
			}
		case c == '(', c == '{', c == '[':
			depth++
		case c == ')', c == '}', c == ']':
			depth--
		}
	}
	return append(args, "not closed")
}

func TestEveryScriptNamesItsKeysAsServersWantThatReadScripts(t *testing.T) {
	scripts := make(map[string]string) // scripts by their positions in the sources
	repository := filepath.Join("..", "..")
	passed := []string{".git", "build", filepath.Join("proof", "mutants"), filepath.Join("internal", "redisqueue", "rules_test.go")} // proof/mutants holds parts of scripts.
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(repository, path)
		switch {
		case err != nil:
			return err
		case slices.Contains(passed, within) && entry.IsDir():
			return filepath.SkipDir
		case slices.Contains(passed, within), entry.IsDir():
		case strings.HasSuffix(path, ".lua"):
			source, err := os.ReadFile(path)
			scripts[within] = string(source)
			return err
		case strings.HasSuffix(path, ".go"):
			return scriptsIn(path, scripts)
		}
		return nil
	}))
	require.Greater(t, len(scripts), 17, "the scripts of the queue, intake, examples and tests")
	for where, source := range scripts {
		assert.Empty(t, scriptFaults(source), where)
	}
}

func scriptsIn(goFile string, found map[string]string) error {
	source, err := os.ReadFile(goFile)
	if err != nil || !strings.Contains(string(source), "redis.call(") {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, goFile, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			if script, err := strconv.Unquote(text.Value); err == nil && strings.Contains(script, "redis.call('") {
				found[files.Position(text.Pos()).String()] = script
			}
		}
		return true
	})
	return nil
}

func TestScriptThatServersRefuseIsFound(t *testing.T) {
	for _, source := range []string{
		"local key = KEYS[1] return redis.call('GET', key)",
		"return redis.call('ZSCORE', KEYS[1], 'whole ' .. KEYS[1])",
		"for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end",
		"return redis.call('DEL', KEYS[1], KEYS[2])",
		"redis.call('DEL', unpack(KEYS))",
		"local command = 'GET' return redis.call(command, KEYS[1])",
		"return redis.call('GET', 'a' .. ARGV[1])",
		"return redis.pcall('XINFO', 'GROUPS', ARGV[1])",
		"return redis.call('TIME')",
		"return redis.call('MGET', KEYS[1])",
		"return redis.call('ZADD', KEYS[1], unpack(ARGV))",
		"return redis.call('SET', KEYS[1], redis.call('GET', KEYS[2]))",
	} {
		assert.NotEmpty(t, scriptFaults(source), source)
	}
	assert.Empty(t, scriptFaults("-- KEYS[i] in a remark\nlocal found = redis.call('XINFO', 'GROUPS', KEYS[1]) return #redis.pcall('ZADD', KEYS[2], 'NX', 1, ARGV[1])"))
}
