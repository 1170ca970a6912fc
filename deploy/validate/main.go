// Validate reads Kubernetes manifests from standard input. It fails if a manifest has an unknown field, or refers to a
// port, volume, ConfigMap or pod that the manifests do not contain. With the argument FOLDER it also writes the
// environment of a pod there: its variables to settings.env, and the files of ConfigMaps at their mount paths, with the
// symbolic links that the kubelet makes.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	manifests "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// serviceMonitor has the fields of the Prometheus operator's type that we use.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// release contains all manifests of one rendering.
type release struct {
	accounts    []core.ServiceAccount
	budgets     []disruption.PodDisruptionBudget
	configs     map[string]core.ConfigMap
	deployments []apps.Deployment
	monitors    []serviceMonitor
	networks    []networking.NetworkPolicy
	services    []core.Service
}

func main() {
	err := run(os.Stdin, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "validate:", err)
		os.Exit(1)
	}
}

func run(input io.Reader, args []string) error {
	all, count, err := read(input)
	if err != nil {
		return err
	}
	if err := all.check(); err != nil {
		return err
	}
	if len(args) == 1 {
		if err := all.write(args[0]); err != nil {
			return err
		}
	}
	fmt.Printf("%d manifests\n", count)
	return nil
}

func read(input io.Reader) (release, int, error) {
	all := release{configs: map[string]core.ConfigMap{}}
	documents := manifests.NewYAMLReader(bufio.NewReader(input))
	for count := 0; ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, count, nil
		}
		if err != nil {
			return all, count, err
		}
		if isEmpty(document) {
			continue
		}
		if err := all.add(document); err != nil {
			return all, count, err
		}
		count++
	}
}

// isEmpty reports whether a document contains only comments.
func isEmpty(document []byte) bool {
	for _, line := range bytes.Split(document, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func (all *release) add(document []byte) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ServiceAccount":
		return strict(document, &all.accounts)
	case "v1 Service":
		return strict(document, &all.services)
	case "v1 ConfigMap":
		var configs []core.ConfigMap
		if err := strict(document, &configs); err != nil {
			return err
		}
		all.configs[configs[0].Name] = configs[0]
		return nil
	case "apps/v1 Deployment":
		return strict(document, &all.deployments)
	case "policy/v1 PodDisruptionBudget":
		return strict(document, &all.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		return strict(document, &all.networks)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return strict(document, &all.monitors)
	}
	return fmt.Errorf("%s %s is not expected", kind.APIVersion, kind.Kind)
}

// strict decodes and appends a manifest. Unknown and duplicate fields are errors.
func strict[T any](document []byte, list *[]T) error {
	var value T
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	// Field names are case-sensitive, as for the API server.
	unknown, err := json.UnmarshalStrict(text, &value)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%w in\n%s", err, document)
	}
	*list = append(*list, value)
	return nil
}

// check reports broken references and rights that the pods do not need. An API server accepts both.
func (all *release) check() error {
	if len(all.deployments) != 1 || len(all.accounts) != 1 || len(all.deployments[0].Spec.Template.Spec.Containers) != 1 {
		return errors.New("expected one ServiceAccount, and one Deployment with one container")
	}
	deployment := all.deployments[0]
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]
	var problems []error
	expect := func(holds bool, format string, args ...any) {
		if !holds {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	// selects reports whether a selector matches our pods, and not all pods.
	selects := func(selector map[string]string) bool {
		return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels))
	}
	hasPort := func(name string) bool {
		return slices.ContainsFunc(container.Ports, func(port core.ContainerPort) bool { return port.Name == name })
	}

	expect(selects(deployment.Spec.Selector.MatchLabels), "the Deployment does not select its pods")
	expect(pod.Spec.ServiceAccountName == all.accounts[0].Name, "the pods have another ServiceAccount")
	for _, budget := range all.budgets {
		expect(budget.Spec.Selector != nil && selects(budget.Spec.Selector.MatchLabels), "%s: PodDisruptionBudget of no pods", budget.Name)
	}
	for _, network := range all.networks {
		expect(selects(network.Spec.PodSelector.MatchLabels), "%s: NetworkPolicy of all pods of the namespace, or of none", network.Name)
		for _, rule := range network.Spec.Ingress {
			expect(len(rule.From) > 0 && len(rule.Ports) > 0, "%s: a rule that permits everybody or every port", network.Name)
			for _, port := range rule.Ports {
				expect(hasPort(port.Port.StrVal), "%s: no port %s", network.Name, port.Port)
			}
		}
	}
	for _, service := range all.services {
		expect(selects(service.Spec.Selector), "%s: Service of no pods", service.Name)
		for _, port := range service.Spec.Ports {
			expect(hasPort(port.TargetPort.StrVal), "%s: no port %s", service.Name, &port.TargetPort)
		}
	}
	for _, monitor := range all.monitors {
		scraped := slices.ContainsFunc(all.services, func(service core.Service) bool {
			selector := labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels)
			return selector.Matches(labels.Set(service.Labels)) && slices.ContainsFunc(service.Spec.Ports,
				func(port core.ServicePort) bool { return port.Name == monitor.Spec.Endpoints[0].Port })
		})
		expect(scraped, "%s: ServiceMonitor of no Service", monitor.Name)
	}

	for name, probe := range map[string]*core.Probe{
		"liveness": container.LivenessProbe, "readiness": container.ReadinessProbe, "startup": container.StartupProbe,
	} {
		expect(probe != nil, "no %s probe", name)
		if probe != nil && probe.HTTPGet != nil {
			expect(probe.HTTPGet.Port.Type == intstr.String && hasPort(probe.HTTPGet.Port.StrVal), "%s probe of no port", name)
		}
	}
	for _, source := range container.EnvFrom {
		_, ok := all.configs[source.ConfigMapRef.Name]
		expect(ok, "no ConfigMap %s", source.ConfigMapRef.Name)
	}
	volumes := map[string]core.Volume{}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = volume
		if volume.ConfigMap != nil {
			_, ok := all.configs[volume.ConfigMap.Name]
			expect(ok, "no ConfigMap %s", volume.ConfigMap.Name)
		}
		if volume.Secret != nil {
			expect(volume.Secret.DefaultMode != nil && *volume.Secret.DefaultMode&0o007 == 0,
				"%s: every user can read the secret, which the server refuses", volume.Name)
		}
	}
	for _, mount := range container.VolumeMounts {
		_, ok := volumes[mount.Name]
		expect(ok, "no volume %s", mount.Name)
	}

	// The restricted pod security standard, and a read-only file system.
	outer, inner := pod.Spec.SecurityContext, container.SecurityContext
	expect(outer != nil && is(outer.RunAsNonRoot, true) && outer.SeccompProfile != nil &&
		outer.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault, "pods are not restricted")
	expect(inner != nil && is(inner.AllowPrivilegeEscalation, false) && is(inner.ReadOnlyRootFilesystem, true) &&
		slices.Equal(inner.Capabilities.Drop, []core.Capability{"ALL"}), "the container is not restricted")
	expect(is(pod.Spec.AutomountServiceAccountToken, false), "pods have a token of the API server")
	expect(is(pod.Spec.EnableServiceLinks, false), "pods have variables of Services")
	return errors.Join(problems...)
}

func is(value *bool, expected bool) bool { return value != nil && *value == expected }

// write creates the environment of the container below folder.
func (all *release) write(folder string) error {
	pod := all.deployments[0].Spec.Template.Spec
	container := pod.Containers[0]
	var settings strings.Builder
	for _, source := range container.EnvFrom {
		for name, value := range all.configs[source.ConfigMapRef.Name].Data {
			fmt.Fprintf(&settings, "%s=%s\n", name, value)
		}
	}
	for _, variable := range container.Env {
		fmt.Fprintf(&settings, "%s=%s\n", variable.Name, variable.Value)
	}
	if err := os.WriteFile(filepath.Join(folder, "settings.env"), []byte(settings.String()), 0o600); err != nil {
		return err
	}
	for _, mount := range container.VolumeMounts {
		place := filepath.Join(folder, mount.MountPath)
		if err := os.MkdirAll(filepath.Join(place, "..data_1"), 0o755); err != nil {
			return err
		}
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name || volume.ConfigMap == nil {
				continue
			}
			// The kubelet replaces the link ..data when a ConfigMap changes.
			if err := os.Symlink("..data_1", filepath.Join(place, "..data")); err != nil {
				return err
			}
			for name, text := range all.configs[volume.ConfigMap.Name].Data {
				if err := os.WriteFile(filepath.Join(place, "..data_1", name), []byte(text), 0o644); err != nil {
					return err
				}
				if err := os.Symlink(filepath.Join("..data", name), filepath.Join(place, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
